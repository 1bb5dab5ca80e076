"""Incremental checkpoints through the flows, without Spark and Airflow: sharing, rescaling, switching, claiming."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import create_engine, func, select, update

from statelib.catalog.tables.schema import CHECKPOINT, FILE, REF
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.flows.checkpoint.steps import register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode, Owner
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.storage.uris import absolute_uri, file_handle, local_path
from tests.support.worlds import checkpoint_of, new_deployment, publish_here

TOURS = """\
name: tours
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: long}}
key: [shop]
states:
  best: {kind: reducing, value: {agg: max, of: amount}}
  per_item: {kind: map, user_key: item, value: {agg: count}}
backend: rocksdb
parallelism: 2
checkpoint: {strategy: incremental, inline_threshold_bytes: 0}
"""
NAME = PipelineName("tours")


def events(number: int) -> pa.Table:
    """Return a day's 200 events of 100 shops, with other amounts every day."""
    numbers = range(number * 200, number * 200 + 200)
    return pa.table(
        {
            "shop": [f"shop-{n % (90 + number)}" for n in numbers],
            "item": [f"item-{n % 7}" for n in numbers],
            "amount": pa.array([n * 37 % 1009 for n in numbers], pa.int64()),
        }
    )


def expected(days: int) -> dict[str, int]:
    """Return the state ``best`` after so many days."""
    best: dict[str, int] = {}
    for row in pa.concat_tables([events(number) for number in range(1, days + 1)]).to_pylist():
        best[row["shop"]] = max(row["amount"], best.get(row["shop"], 0))
    return best


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "tours.yaml").write_text(TOURS)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def run(deployment: Deployment, number: int) -> CheckpointManifest:
    """Apply a day, register its checkpoint, and assert that it is complete and right."""
    checkpoint_id = checkpoint_of(deployment, "tours", number, events(number))
    opened = resolve(deployment, f"tours/{checkpoint_id}")
    assert verify(opened, scratch=deployment.work_directory).problems == ()
    table = opened.to_arrow("best", deployment.work_directory)
    assert dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == expected(number)
    assert opened.manifest is not None
    return opened.manifest


def use(deployment: Deployment, strategy: str) -> None:
    path = Path(deployment.pipelines_directory) / "tours.yaml"
    path.write_text(TOURS.replace("strategy: incremental", f"strategy: {strategy}"))


def shared(manifest: CheckpointManifest) -> set[str]:
    return {file.path for file in manifest.files if "/tours/shared/" in file.path}


def restore(
    deployment: Deployment, checkpoint: str, parallelism: int | None, claim: ClaimMode = ClaimMode.NO_CLAIM
) -> None:
    pipeline = deployment.pipeline("tours")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, checkpoint, parallelism, claim), "test")


def test_checkpoints_refer_to_each_others_files(deployment: Deployment) -> None:
    first, second = run(deployment, 1), run(deployment, 2)
    assert len(shared(first)) == 4, "two subtasks, two states"
    assert shared(first) < shared(second)
    assert {f for f in first.files if f.path in shared(first)} < set(second.files), "with size and checksum as before"
    whole = sum(file.size_bytes for file in second.files)
    reused = sum(file.size_bytes for file in second.files if file.path in shared(first))
    assert first.uploaded_bytes == sum(file.size_bytes for file in first.files)
    assert second.uploaded_bytes == whole - reused < whole
    record = deployment.catalog().get(NAME, second.checkpoint_id)
    assert record.size_bytes == whole + resolve(deployment, "tours/2").metadata_size_bytes


def test_the_catalog_has_one_row_for_a_shared_file(deployment: Deployment) -> None:
    first, second = run(deployment, 1), run(deployment, 2)
    engine = create_engine(deployment.catalog_url)
    references = select(REF.c.file_id, func.count()).group_by(REF.c.file_id)
    with engine.connect() as connection:
        counted = dict(connection.execute(references).tuples().all())
        creators = dict(connection.execute(select(FILE.c.file_id, FILE.c.created_by)).tuples().all())
    engine.dispose()
    assert {file for file, count in counted.items() if count == 2} == shared(first)
    assert {creators[file] for file in shared(first)} == {first.checkpoint_id}
    assert {creators[file] for file in shared(second) - shared(first)} == {second.checkpoint_id}


def test_storage_contains_exactly_the_files_that_checkpoints_name(deployment: Deployment) -> None:
    named = set()
    for number in range(1, 9):
        manifest = run(deployment, number)
        directory = f"{deployment.storage_root}/tours/chk-{manifest.checkpoint_id}"
        named |= {local_path(absolute_uri(directory, file_handle(f.path, f.size_bytes))) for f in manifest.files}
    paths = {str(p) for p in Path(deployment.storage_root).rglob("*") if p.is_file() and p.name != "_metadata"}
    assert paths == named


def test_rescaling_writes_all_files_anew_once(deployment: Deployment) -> None:
    last, number = run(deployment, 1), 1
    for parallelism in (5, 3, 1):
        restore(deployment, str(last.checkpoint_id), parallelism)
        whole, sharing = run(deployment, number + 1), run(deployment, number + 2)
        assert not shared(whole) & shared(last)
        assert whole.uploaded_bytes == sum(file.size_bytes for file in whole.files)
        assert shared(whole) & shared(sharing), "all but what RocksDB compacted meanwhile"
        assert len({file.subtask for file in whole.files}) == parallelism
        last, number = sharing, number + 2


def test_a_restore_in_place_refers_to_files_of_the_restored_checkpoint(deployment: Deployment) -> None:
    first, second = run(deployment, 1), run(deployment, 2)
    restore(deployment, str(first.checkpoint_id), None)
    again = run(deployment, 2)
    assert shared(first) < shared(again)
    assert not (shared(again) - shared(first)) & shared(second), "same names in RocksDB, other files"


@pytest.mark.parametrize("way", [("full", "incremental", "full"), ("incremental", "canonical", "incremental")])
def test_strategies_can_change_between_runs(deployment: Deployment, way: tuple[str, ...]) -> None:
    manifests = []
    for number, strategy in enumerate(way, 1):
        use(deployment, strategy)
        manifests.append(run(deployment, number))
        assert bool(shared(manifests[-1])) == (strategy == "incremental")
        assert manifests[-1].uploaded_bytes == sum(f.size_bytes for f in manifests[-1].files), "nothing is referred to"
    assert [m.strategy for m in manifests] == list(way)


def test_a_users_savepoint_is_complete_and_nothing_refers_to_it(deployment: Deployment, tmp_path: Path) -> None:
    run(deployment, 1)
    pipeline = deployment.pipeline("tours")
    saved = begin_savepoint(
        deployment, pipeline, format="native", target=str(tmp_path / "mine"), note="", owner="test", key="k"
    )
    publish_here(deployment, pipeline, saved.checkpoint_id)
    record = register(deployment, pipeline, saved.checkpoint_id)
    manifest = open_checkpoint(record.directory, own=True).manifest
    assert manifest is not None
    assert (record.owner, shared(manifest)) == (Owner.USER, set())
    second = run(deployment, 2)
    assert second.base == 1, "a savepoint is no base"
    assert second.uploaded_bytes < sum(file.size_bytes for file in second.files)
    restore(deployment, str(saved.checkpoint_id), None)
    again = run(deployment, 2)
    assert (again.base, again.uploaded_bytes) == (saved.checkpoint_id, sum(f.size_bytes for f in again.files))
    shutil.rmtree(tmp_path / "mine")
    run(deployment, 3)


def test_a_checkpoint_outside_the_storage_may_only_refer_to_its_own_directory(
    deployment: Deployment, tmp_path: Path
) -> None:
    run(deployment, 1)
    own = f"{deployment.storage_root}/tours/chk-1"
    copy = shutil.copytree(own, tmp_path / "storage" / "chk-1")
    root = deployment.storage_root
    readers: list[Callable[[], object]] = [
        lambda: open_checkpoint(own).to_arrow("best"),
        lambda: open_checkpoint(str(copy), storage_root=root).to_arrow("best"),
        lambda: verify(open_checkpoint(str(copy), storage_root=root)),
        lambda: verify(open_checkpoint(own, storage_root=f"{root}/tours")),
    ]
    for read in readers:
        with pytest.raises(InvalidRequestError) as caught:
            read()
        assert caught.value.kind == "outside-root"
    with pytest.raises(InvalidRequestError) as caught:
        restore(deployment, str(copy), None, ClaimMode.CLAIM)
    assert caught.value.kind == "foreign-file"
    assert not verify(resolve(deployment, own)).problems, "by its path, in the storage, it is our own"
    restore(deployment, "1", None, ClaimMode.CLAIM)
    assert shared(run(deployment, 2))


def test_a_damaged_shared_file_is_detected_in_every_checkpoint_that_needs_it(deployment: Deployment) -> None:
    first, _ = run(deployment, 1), run(deployment, 2)
    (victim, *_) = sorted(shared(first))
    path = Path(local_path(victim))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    for number in (1, 2):
        (problem,) = verify(resolve(deployment, f"tours/{number}")).problems
        assert local_path(victim) in problem
        assert "crc32c" in problem
    with pytest.raises(CorruptStateError) as caught:
        checkpoint_of(deployment, "tours", 3, events(3))
    assert caught.value.kind == "checksum-mismatch"


def test_files_of_a_users_base_are_not_referred_to(deployment: Deployment) -> None:
    first = run(deployment, 1)
    engine = create_engine(deployment.catalog_url)
    with engine.begin() as connection:
        connection.execute(update(CHECKPOINT).values(owner=Owner.USER))
    engine.dispose()
    second = run(deployment, 2)
    assert second.base == first.checkpoint_id
    assert not shared(first) & shared(second)
    assert shared(second) < shared(run(deployment, 3))
