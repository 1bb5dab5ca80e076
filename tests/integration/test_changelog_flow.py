"""Changelog checkpoints through the flows, without Spark and Airflow: the log, materialising, rescaling, reading."""

from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError, NotFoundError
from statelib.flows.checkpoint.steps import register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.handles import ChangelogStateBackendHandleImpl, log_streams, stream_handles
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.volume import bytes_to_read
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.storage.uris import absolute_uri, file_handle, local_path
from statelib.testing.counting_reader import counting
from tests.support.worlds import checkpoint_of, new_deployment, publish_here

TOURS = """\
name: tours
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long}}
key: [shop]
states:
  best: {kind: reducing, value: {agg: max, of: amount}}
  per_item: {kind: map, user_key: item, value: {agg: count}}
  amounts: {kind: list, value: {agg: collect, of: amount}}
backend: BACKEND
parallelism: 2
checkpoint: {strategy: changelog, inline_threshold_bytes: 0, materialize_after_checkpoints: 3, retain: {count: 2}}
"""
NAME = PipelineName("tours")


def events(number: int) -> pa.Table:
    """Return a day's 200 events: of 100 shops on the first day, of ten shops on each day after it."""
    numbers = range(number * 200, number * 200 + 200)
    shops = 100 if number == 1 else 10
    return pa.table(
        {
            "shop": [f"shop-{(n % shops) + number}" for n in numbers],
            "item": [f"item-{n % 7}" for n in numbers],
            "amount": pa.array([n * 37 % 1009 for n in numbers], pa.int64()),
        }
    )


def expected(days: int) -> dict[str, tuple[int, list[int]]]:
    """Return the states ``best`` and ``amounts`` after so many days."""
    amounts: dict[str, list[int]] = {}
    for row in pa.concat_tables([events(number) for number in range(1, days + 1)]).to_pylist():
        amounts.setdefault(row["shop"], []).append(row["amount"])
    return {shop: (max(result), sorted(result)) for shop, result in amounts.items()}


@pytest.fixture(params=["heap", "rocksdb"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "tours.yaml").write_text(TOURS.replace("BACKEND", request.param))
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def use(deployment: Deployment, old: str, new: str) -> None:
    path = Path(deployment.pipelines_directory) / "tours.yaml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def run(deployment: Deployment, number: int) -> CheckpointManifest:
    """Apply a day, register its checkpoint, and assert that it is complete and right by every way of reading."""
    checkpoint_id = checkpoint_of(deployment, "tours", number, events(number))
    opened = resolve(deployment, f"tours/{checkpoint_id}")
    assert verify(opened, scratch=deployment.work_directory).problems == ()
    best, amounts = (opened.to_arrow(name, deployment.work_directory) for name in ("best", "amounts"))
    values = dict(zip(best["key"].to_pylist(), best["value"].to_pylist(), strict=True))
    lists = dict(zip(amounts["key"].to_pylist(), map(sorted, amounts["value"].to_pylist()), strict=True))
    assert {shop: (values[shop], lists[shop]) for shop in values} == expected(number)
    assert opened.manifest is not None
    return opened.manifest


def handles(deployment: Deployment, checkpoint_id: int) -> list[ChangelogStateBackendHandleImpl]:
    result = resolve(deployment, f"tours/{checkpoint_id}").handles()
    assert all(isinstance(handle, ChangelogStateBackendHandleImpl) for handle in result)
    return list(result)


def logs(deployment: Deployment, checkpoint_id: int) -> list[int]:
    """Return the number of parts of each subtask's log."""
    return [len(handle.log) for handle in handles(deployment, checkpoint_id)]


def paths(manifest: CheckpointManifest) -> set[str]:
    return {file.path for file in manifest.files}


def restore(deployment: Deployment, checkpoint: str, parallelism: int | None) -> None:
    pipeline = deployment.pipeline("tours")
    apply_restore(
        deployment, pipeline, plan_restore(deployment, pipeline, checkpoint, parallelism, ClaimMode.NO_CLAIM), "test"
    )


def test_only_the_log_grows_until_the_state_is_materialised(deployment: Deployment) -> None:
    first = run(deployment, 1)
    assert logs(deployment, 1) == [0, 0]
    before, sizes = first, [first.uploaded_bytes]
    for number in (2, 3, 4):
        manifest = run(deployment, number)
        assert logs(deployment, number) == [number - 1, number - 1]
        assert paths(before) < paths(manifest), "all of it is referred to again"
        new = [file for file in manifest.files if file.path not in paths(before)]
        assert len(new) == 2
        assert manifest.uploaded_bytes == sum(file.size_bytes for file in new)
        before, sizes = manifest, [*sizes, manifest.uploaded_bytes]
    materialized = [handle.materialized for handle in handles(deployment, 4)]
    assert materialized == [handle.materialized for handle in handles(deployment, 1)]
    fifth = run(deployment, 5)
    assert logs(deployment, 5) == [0, 0]
    assert [handle.materialization_id for handle in handles(deployment, 5)] == [2, 2]
    assert (
        not {p.path for p in fifth.files if p.path in paths(before)}
        or deployment.pipeline("tours").backend == "rocksdb"
    )
    assert logs(deployment, run(deployment, 6).checkpoint_id) == [1, 1]


def test_a_log_that_would_be_too_large_is_materialised(deployment: Deployment) -> None:
    use(deployment, "materialize_after_checkpoints: 3", "materialize_after_bytes: 100")
    run(deployment, 1)
    assert logs(deployment, run(deployment, 2).checkpoint_id) == [0, 0]


def test_an_interval_without_events_writes_nothing(deployment: Deployment) -> None:
    first = run(deployment, 1)
    checkpoint_id = checkpoint_of(deployment, "tours", 2, events(2).slice(0, 0))
    second = resolve(deployment, f"tours/{checkpoint_id}").manifest
    assert second is not None
    assert (paths(second), second.uploaded_bytes) == (paths(first), 0)


def test_a_savepoint_is_complete_and_the_log_continues(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    run(deployment, 2)
    pipeline = deployment.pipeline("tours")
    for form in ("canonical", "native"):
        saved = begin_savepoint(
            deployment, pipeline, format=form, target=str(tmp_path / "m"), note="", owner="t", key=form
        )
        publish_here(deployment, pipeline, saved.checkpoint_id)
        directory = register(deployment, pipeline, saved.checkpoint_id).directory
        opened = open_checkpoint(directory, own=True)
        assert verify(opened, scratch=deployment.work_directory).problems == ()
        own = sorted(export_lines(resolve(deployment, "tours/2"), None, deployment.work_directory))
        assert sorted(export_lines(opened, None, deployment.work_directory)) == own
        assert not [f for f in paths(opened.manifest) if "/shared/" in f]
    third = run(deployment, 3)
    assert logs(deployment, third.checkpoint_id) == [2, 2]
    restore(deployment, str(saved.checkpoint_id), None)
    again = run(deployment, 3)
    assert logs(deployment, again.checkpoint_id) == [0, 0]
    assert not paths(again) & paths(third)
    assert logs(deployment, run(deployment, 4).checkpoint_id) == [1, 1]


def test_rescaling_reads_the_log_and_begins_a_new_one(deployment: Deployment) -> None:
    run(deployment, 1)
    last, number = run(deployment, 2), 2
    for parallelism in (5, 3, 1):
        restore(deployment, str(last.checkpoint_id), parallelism)
        whole = run(deployment, number + 1)
        assert logs(deployment, whole.checkpoint_id) == [0] * parallelism
        assert not paths(whole) & paths(last)
        last, number = run(deployment, number + 2), number + 2
        assert sum(logs(deployment, last.checkpoint_id)) > 0


def test_a_restore_continues_the_log_of_the_restored_checkpoint(deployment: Deployment) -> None:
    run(deployment, 1)
    second, third = run(deployment, 2), run(deployment, 3)
    restore(deployment, str(second.checkpoint_id), None)
    again = run(deployment, 3)
    assert logs(deployment, again.checkpoint_id) == [2, 2]
    assert paths(second) < paths(again)
    assert not (paths(again) - paths(second)) & paths(third)


def test_strategies_can_change_between_runs(deployment: Deployment) -> None:
    rocksdb = deployment.pipeline("tours").backend == "rocksdb"
    run(deployment, 1)
    logged = run(deployment, 2)
    other = "incremental" if rocksdb else "canonical"
    use(
        deployment,
        "strategy: changelog, inline_threshold_bytes: 0, materialize_after_checkpoints: 3",
        f"strategy: {other}",
    )
    third = run(deployment, 3)
    assert bool(paths(third) & paths(logged)) == rocksdb, "files of the materialised part"
    assert not {s.path for h in handles(deployment, 2) for s in log_streams(h)} & paths(third)
    use(deployment, f"strategy: {other}", "strategy: changelog")
    fourth = run(deployment, 4)
    assert logs(deployment, fourth.checkpoint_id) == [0, 0]
    assert logs(deployment, run(deployment, 5).checkpoint_id) == [1, 1]


def test_after_thirty_checkpoints_only_files_of_living_checkpoints_are_left(deployment: Deployment) -> None:
    for number in range(1, 31):
        run(deployment, number)
        if number % 5 == 0:
            retire(deployment, "tours")
            collect_garbage(deployment, "tours")
    records = [r for r in deployment.catalog().list(NAME) if r.state == "COMPLETED"]
    assert len(records) == 2
    named = set()
    for record in records:
        manifest = resolve(deployment, f"tours/{record.checkpoint_id}").manifest
        assert manifest is not None
        named |= {local_path(absolute_uri(record.directory, file_handle(f.path, f.size_bytes))) for f in manifest.files}
    root = Path(deployment.storage_root)
    assert {str(p) for p in root.rglob("*") if p.is_file() and p.name != "_metadata"} == named
    assert verify(resolve(deployment, "tours/30"), scratch=deployment.work_directory).problems == ()


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone"])
def test_the_error_names_a_damaged_part_of_the_log(deployment: Deployment, damage: str) -> None:
    run(deployment, 1)
    run(deployment, 2)
    (victim, *_) = [s for handle in handles(deployment, 2) for s in log_streams(handle)]
    path = Path(local_path(victim.path))
    data = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(data[:-1] if damage == "cut" else bytes([*data[:30], data[30] ^ 1, *data[31:]]))
    (problem,) = verify(resolve(deployment, "tours/2"), scratch=deployment.work_directory).problems
    assert str(path) in problem
    with pytest.raises((CorruptStateError, NotFoundError), match=path.name) as caught:
        checkpoint_of(deployment, "tours", 3, events(3))
    kinds = {"cut": "size-mismatch", "flipped": "checksum-mismatch", "gone": "missing-file"}
    assert caught.value.kind == kinds[damage]
    assert verify(resolve(deployment, "tours/1"), scratch=deployment.work_directory).problems == (), (
        "the log is not its own"
    )


def test_the_diff_of_two_checkpoints_equals_the_logged_changes(deployment: Deployment) -> None:
    run(deployment, 1)
    run(deployment, 2)
    first, second = resolve(deployment, "tours/1"), resolve(deployment, "tours/2")
    best, _, amounts = Diff(first, second, deployment.work_directory).states
    before, after = expected(1), expected(2)
    risen = [shop for shop in before if before[shop][0] != after[shop][0]]
    longer = [shop for shop in before if before[shop][1] != after[shop][1]]
    assert (best.changed, best.added, best.removed) == (len(risen), len(after) - len(before), 0)
    assert (amounts.changed, amounts.added) == (len(longer), len(after) - len(before))


def test_a_restore_reads_base_and_log_once(deployment: Deployment) -> None:
    run(deployment, 1)
    run(deployment, 2)
    opened = counting(resolve(deployment, "tours/2"))
    pipeline = deployment.pipeline("tours")
    for number, source in enumerate(opened.sources()):
        planned = bytes_to_read(pipeline.schema(), source.handle.key_group_range, [source], pipeline.backend)
        sizes = {stream.path: stream.size_bytes for stream in stream_handles(source.handle)}
        opened.read_bytes.clear()
        if pipeline.backend == "heap":
            restore_heap(pipeline.schema(), source.handle.key_group_range, [source])
        else:
            directory = f"{deployment.work_directory}/{number}"
            restore_rocksdb(pipeline.schema(), source.handle.key_group_range, [source], directory, "uid").close()
        assert opened.read_bytes.total() == planned
        assert all(read == sizes[path] for path, read in opened.read_bytes.items())
