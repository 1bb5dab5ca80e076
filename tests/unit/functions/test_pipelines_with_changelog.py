"""The shipped pipelines with a log around their state: every kind of state and user code, restored after each day."""

from pathlib import Path

import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.definition.pipeline import load_pipeline
from statelib.model.handles import ChangelogStateBackendHandleImpl
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import all_key_groups
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.keyed_samples import all_entries
from statelib.testing.local_run import LocalRun
from tests.unit.functions.test_shipped_pipelines import flights

SHIPPED = Path(__file__).parents[3] / "dags" / "pipelines"
UID = "5a7b0000-0000-0000-0000-000000000000"
SHARED = CheckpointedStateScope.SHARED


@pytest.mark.parametrize("kind", ["heap", "rocksdb"])
@pytest.mark.parametrize("name", ["aircraft_activity", "route_delays", "carrier_streaks"])
def test_each_day_restores_from_base_and_log(name: str, kind: str, tmp_path: Path) -> None:
    pipeline = load_pipeline(SHIPPED / f"{name}.yaml")
    whole = all_key_groups(pipeline.max_parallelism)
    inner: KeyedStateBackend
    if kind == "heap":
        inner = HeapKeyedStateBackend(pipeline.schema(), whole)
    else:
        inner = RocksDBKeyedStateBackend(pipeline.schema(), whole, str(tmp_path / "live"), UID)
    logging = ChangelogKeyedStateBackend(inner, 1 << 24)
    made = (
        RocksDBIncrementalSnapshotStrategy(inner, UID, private_scope=SHARED)
        if isinstance(inner, RocksDBKeyedStateBackend)
        else CanonicalSnapshotStrategy(inner, scope=SHARED)
    )
    strategy = ChangelogSnapshotStrategy(logging, UID, made, MaterializationLimits(1 << 24, 3))
    run, plain, chain = LocalRun(pipeline, logging), LocalRun(pipeline), CheckpointChain(tmp_path / "storage")
    logs = []
    for day in range(1, 7):
        assert run.apply(flights(200, day)) == plain.apply(flights(200, day))
        result = take_snapshot(strategy, CheckpointId(day), chain.streams(day), CloseableRegistry())
        strategy.notify_checkpoint_complete(CheckpointId(day))
        source = chain.source(day, result, logging)
        assert isinstance(source.handle, ChangelogStateBackendHandleImpl)
        logs.append(len(source.handle.log))
        back: KeyedStateBackend
        if kind == "heap":
            back = restore_heap(pipeline.schema(), whole, [source])
        else:
            back = restore_rocksdb(pipeline.schema(), whole, [source], str(tmp_path / f"back-{day}"), UID)
        assert all_entries(back) == all_entries(plain.backend)
        back.close()
    assert logs == [0, 1, 2, 3, 0, 1]
    strategy.close()
    logging.close()
