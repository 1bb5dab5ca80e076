"""File merging through the flows, without Spark and Airflow: what lies on disk, for how long, and that it is right."""

from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.handles import SegmentFileStateHandle, stream_handles
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.storage.uris import local_path, to_uri
from tests.support.extent import TEST_ALL
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

TOURS = """\
name: tours
source:
  path: "{data}/{start}-{end}"
  columns: {shop: string, item: string, amount: long, r0: long, r1: long, r2: long, r3: long, r4: long}
key: [shop]
states:
  best: {kind: reducing, value: {agg: max, of: amount}}
  per_item: {kind: map, user_key: item, value: {agg: count}}
  rare0: {kind: reducing, value: {agg: max, of: r0}}
  rare1: {kind: reducing, value: {agg: max, of: r1}}
  rare2: {kind: reducing, value: {agg: max, of: r2}}
  rare3: {kind: reducing, value: {agg: max, of: r3}}
  rare4: {kind: reducing, value: {agg: max, of: r4}}
backend: rocksdb
parallelism: 2
checkpoint:
  strategy: incremental
  inline_threshold_bytes: 0
  retain: {count: 3}
  file_merging: {enabled: true}
"""
NAME = PipelineName("tours")
DAYS = 20


def events(number: int) -> pa.Table:
    """Return a day's 1,600 events of the same 400 shops, so that RocksDB soon rewrites its files. On the first days
    they change one more state, the same for three days, so that SST files that stay are merged with others that do
    not."""
    numbers = range(number * 1600, number * 1600 + 1600)
    columns = {
        "shop": pa.array([f"shop-{n % 400}" for n in numbers]),
        "item": pa.array([f"item-{n // 400 % 4}" for n in numbers]),
        "amount": pa.array([n * 7919 % 100_003 for n in numbers], pa.int64()),
    }
    for rare in range(5):
        today = rare == (number - 1) // 3
        columns[f"r{rare}"] = pa.array([n if today and n % 400 < 4 else None for n in numbers], pa.int64())
    return pa.table(columns)


def expected(days: int) -> dict[str, int]:
    """Return the state ``best`` after so many days."""
    best: dict[str, int] = {}
    for row in pa.concat_tables([events(number) for number in range(1, days + 1)]).to_pylist():
        best[row["shop"]] = max(row["amount"], best.get(row["shop"], 0))
    return best


def use(deployment: Deployment, text: str) -> None:
    (Path(deployment.pipelines_directory) / "tours.yaml").write_text(text)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    use(deployment, TOURS)
    return deployment


def run(deployment: Deployment, number: int) -> Checkpoint:
    """Apply a day, register its checkpoint, and assert that it is complete and right."""
    opened = resolve(deployment, f"tours/{checkpoint_of(deployment, 'tours', number, events(number))}")
    assert verify(opened, scratch=deployment.work_directory).problems == ()
    assert content(deployment, opened) == expected(number)
    return opened


def content(deployment: Deployment, opened: Checkpoint) -> dict[str, int]:
    table = opened.to_arrow("best", deployment.work_directory)
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


def clean(deployment: Deployment) -> list[Checkpoint]:
    """Run retention, gc and the sweep. Return the remaining checkpoints."""
    retire(deployment)
    collect_garbage(deployment)
    orphans(deployment, dry_run=False, force=True)
    return [
        resolve(deployment, f"tours/{r.checkpoint_id}")
        for r in deployment.catalog().list(NAME, {CheckpointState.COMPLETED})
    ]


def data_files(deployment: Deployment) -> dict[str, int]:
    """Return the size by URI of all files in the pipeline's directory except ``_metadata``."""
    paths = (Path(deployment.storage_root) / "tours").rglob("*")
    return {to_uri(str(p)): p.stat().st_size for p in paths if p.is_file() and p.name != "_metadata"}


def segments(opened: Checkpoint) -> set[SegmentFileStateHandle]:
    streams = [stream for handle in opened.handles() for stream in stream_handles(handle)]
    return {stream for stream in streams if isinstance(stream, SegmentFileStateHandle)}


def physical(opened: Checkpoint) -> set[str]:
    assert opened.manifest is not None
    return {file.path for file in opened.manifest.files}


def amplification(deployment: Deployment, living: list[Checkpoint], below: str) -> float:
    """Return the bytes on disk in a directory, divided by those that a living checkpoint refers to."""
    referred = {s for opened in living for s in segments(opened) if below in s.path}
    on_disk = sum(size for uri, size in data_files(deployment).items() if below in uri)
    return on_disk / sum(segment.size_bytes for segment in referred)


@pytest.mark.parametrize(("limit", "worst"), [(2.0, (1.0, 2.0)), *([(1000, (2.0, 1000.0))] if TEST_ALL else [])])
def test_twenty_checkpoints_stay_right_and_small(
    deployment: Deployment, limit: float, worst: tuple[float, float]
) -> None:
    use(deployment, TOURS.replace("enabled: true", f"enabled: true, max_space_amplification: {limit}"))
    result, reused = [], 0
    previous: set[SegmentFileStateHandle] = set()
    for number in range(1, DAYS + 1):
        opened = run(deployment, number)
        reused += len(segments(opened) & previous)
        previous = segments(opened)
        living = clean(deployment)
        assert len(living) == min(number, 3)
        assert set().union(*map(physical, living)) == set(data_files(deployment)), "no file more, no file less"
        assert {s.path for each in living for s in segments(each)} == set(data_files(deployment)), "all of it is merged"
        result.append(amplification(deployment, living, "/tours/shared/"))
        assert amplification(deployment, living, "/tours/") <= result[-1]
    assert reused > DAYS, "later checkpoints refer to segments of earlier ones"
    assert worst[0] <= max(result) <= worst[1]
    for opened in clean(deployment):
        assert opened.manifest is not None
        assert content(deployment, opened) == expected(int(opened.manifest.checkpoint_id))


def test_merging_writes_few_files_instead_of_many(deployment: Deployment) -> None:
    merged = run(deployment, 1)
    use(deployment, TOURS.replace("enabled: true", "enabled: false"))
    plain = run(deployment, 2)
    assert not segments(plain), "without merging nothing refers to a part of a file"
    assert len(physical(plain)) >= 10
    assert len(physical(merged)) == 4, "two subtasks, and of each what is shared and what is not"
    assert not physical(merged) & physical(plain)
    use(deployment, TOURS)
    again = run(deployment, 3)
    assert physical(again) & physical(plain), "whole files are referred to as ever"
    assert segments(again)


def test_a_physical_file_is_kept_as_long_as_any_checkpoint_needs_a_part_of_it(deployment: Deployment) -> None:
    first, second = run(deployment, 1), run(deployment, 2)
    shared = physical(first) & physical(second)
    assert shared
    number = 2
    while number < 10 and shared <= data_files(deployment).keys():
        number += 1
        run(deployment, number)
        living = clean(deployment)
        needed = set().union(*map(physical, living))
        assert shared & needed == shared & data_files(deployment).keys()
    assert shared - data_files(deployment).keys(), "in the end nobody needed all of it"


def test_merged_checkpoints_can_be_restored_rescaled_and_saved(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    second = run(deployment, 2)
    pipeline = deployment.pipeline("tours")
    for form in ("native", "canonical"):
        saved = begin_savepoint(
            deployment, pipeline, format=form, target=str(tmp_path / form), note="", owner="test", key=form
        )
        publish_here(deployment, pipeline, saved.checkpoint_id)
        register(deployment, pipeline, saved.checkpoint_id)
        opened = resolve(deployment, f"tours/{saved.checkpoint_id}")
        assert not segments(opened), "a savepoint is whole by itself"
        assert content(deployment, opened) == expected(2)
        assert not any(state.different for state in Diff(second, opened, deployment.work_directory).states)
    for parallelism in (3, 2, None):
        apply_restore(
            deployment, pipeline, plan_restore(deployment, pipeline, "2", parallelism, ClaimMode.NO_CLAIM), "test"
        )
        assert segments(run(deployment, 3))


def test_damage_of_a_segment_is_detected_by_verify_and_by_a_restore(deployment: Deployment) -> None:
    run(deployment, 1)
    second = run(deployment, 2)
    victim = min(segments(second), key=lambda s: (s.scope, s.path, s.start))
    path = Path(local_path(victim.path))
    data = bytearray(path.read_bytes())
    data[victim.start + victim.size_bytes // 2] ^= 1
    path.write_bytes(data)
    (problem,) = verify(resolve(deployment, "tours/2")).problems
    assert str(path) in problem
    assert "crc32c" in problem
    with pytest.raises(CorruptStateError) as caught:
        checkpoint_of(deployment, "tours", 3, events(3))
    assert caught.value.kind == "checksum-mismatch"


def test_files_of_an_aborted_attempt_are_removed_by_the_sweep(deployment: Deployment) -> None:
    run(deployment, 1)
    before = data_files(deployment)
    pipeline = deployment.pipeline("tours")
    begun = begin(deployment, pipeline, day(2), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events(2))
    (Path(deployment.storage_root) / "tours" / f"chk-{begun.checkpoint_id}" / "_metadata").unlink()
    deployment.catalog().abort(NAME, begun.checkpoint_id, "test")
    left = data_files(deployment).keys() - before.keys()
    assert len(left) == 4
    (result,) = orphans(deployment, dry_run=False, force=True)
    assert set(result.files) == left
    assert data_files(deployment) == before
