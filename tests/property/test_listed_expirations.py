"""Runs that look only for the listed entries remove what runs remove that read the whole state.

A pipeline on RocksDB, whose checkpoints have lists, and one on the heap, which reads everything, take the same runs,
restores, rescales and changes of the time to live."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers import expiring
from statelib.backends.wrappers.expiring import expiring_name
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import open_checkpoint
from tests.support.extent import examples
from tests.support.worlds import day, new_deployment, publish_here

NAME = PipelineName("carts")
CARTS = """\
name: carts
source: {path: "{data}/carts-{start:%Y-%m-%d}", columns: {user: string, item: string}}
key: [user]
max_parallelism: 8
states:
  last: {kind: value, fields: {item: {agg: last, of: item, by: item}}, ttl: TIMEd}
  per_item: {kind: map, user_key: item, value: {agg: count}, ttl: TIMEd, update: on_read_and_write}
  items: {kind: list, value: {agg: collect, of: item}, ttl: TIMEd}
backend: BACKEND
parallelism: 2
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0}
"""
STRATEGIES = ("incremental", "changelog")
EVENTS = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 2)), max_size=6)
CHANGES = st.one_of(st.integers(-3, 3), st.tuples(st.integers(0, 99), st.sampled_from([1, 2, 3])))
"""Days that are added to the time to live, or the checkpoint to restore and the parallelism after it."""
Step = tuple[int, list[tuple[int, int]], bool, int | tuple[int, int] | None]
STEPS = st.lists(
    st.tuples(
        st.sampled_from([1, 1, 1, 1, 2, 4]),
        EVENTS,
        st.sampled_from([False, False, True]),
        st.sampled_from([False, False, False, False, True]).flatmap(lambda changes: CHANGES if changes else st.none()),
    ),
    min_size=6,
    max_size=14,
)
"""Per run: how many days later than the one before it, events, whether checks are made, and what changes before it."""


def written(root: Path, backend: str, strategy: str, days: int) -> Deployment:
    text = CARTS.replace("BACKEND", backend).replace("STRATEGY", strategy).replace("TIME", str(days))
    (root / "pipelines").mkdir(exist_ok=True, parents=True)
    (root / "pipelines" / "carts.yaml").write_text(text)
    return new_deployment(root, root, root / "pipelines")


def run(deployment: Deployment, number: int, events: list[tuple[int, int]], *, judged: bool = False) -> CheckpointId:
    pipeline = deployment.pipeline(NAME)
    begun = begin(deployment, pipeline, day(number), "test").checkpoint_id
    columns = [pa.array([f"user-{user}" for user, _ in events], pa.string()),
               pa.array([f"item-{item}" for _, item in events], pa.string())]  # fmt: skip
    publish_here(deployment, pipeline, begun, pa.table(columns, ["user", "item"]))
    if judged:
        check(deployment, pipeline, begun)
    register(deployment, pipeline, begun)
    return begun


def content(deployment: Deployment, checkpoint_id: CheckpointId) -> dict[str, list[str]]:
    """Return the entries of each state, with the times of their last access."""
    record = deployment.catalog().get(NAME, checkpoint_id)
    opened = open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)
    rows: dict[str, list[str]] = {state.name: [] for state in opened.schema().states}
    for state, table in opened.tables():
        name = state if isinstance(state, str) else opened.schema().states[state].name
        rows[name] += map(repr, table.to_pylist())
    return {name: sorted(entries) for name, entries in rows.items()}


@settings(max_examples=examples(8), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(STRATEGIES), st.integers(2, 9), st.sampled_from([0, 40, 1 << 20]), STEPS)
def test_runs_with_lists_hold_what_runs_without_them_hold(
    strategy: str, days: int, limit_bytes: int, steps: list[Step]
) -> None:
    with tempfile.TemporaryDirectory(prefix="listed-") as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(expiring, "LIMIT_BYTES", limit_bytes)
        sides = declared(Path(root), strategy, days)
        number, taken = 0, list[tuple[CheckpointId, int]]()
        for later, events, judged, change in steps:
            if isinstance(change, int):
                days = max(days + change, 1)
                sides = declared(Path(root), strategy, days)
            elif change is not None and taken:
                which, parallelism = change
                chosen, number = taken[which % len(taken)]
                for side in sides:
                    restore(side, chosen, parallelism)
            first, number = number + 1, number + later
            for without_events in range(first, number):
                for side in sides:
                    run(side, without_events, [])
            ids = [run(side, number, events, judged=judged) for side in sides]
            assert ids[0] == ids[1]
            assert content(sides[0], ids[0]) == content(sides[1], ids[1])
            taken.append((ids[0], number))


def declared(root: Path, strategy: str, days: int) -> tuple[Deployment, Deployment]:
    """Write the files of the pipeline with lists, and of the one without."""
    listing = written(root / "rocksdb", "rocksdb", strategy, days)
    return listing, written(root / "heap", "heap", "full", days)


def restore(side: Deployment, chosen: CheckpointId, parallelism: int) -> None:
    pipeline = side.pipeline(NAME)
    apply_restore(side, pipeline, plan_restore(side, pipeline, str(chosen), parallelism, ClaimMode.NO_CLAIM), "test")


def test_the_whole_state_is_read_once_in_half_the_time_to_live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry that is accessed each day stays, and the others are removed on their day."""
    scans: list[str] = []
    scan = RocksDBKeyedStateBackend.scan
    monkeypatch.setattr(RocksDBKeyedStateBackend, "scan", lambda self, state: scans.append(state) or scan(self, state))
    deployment = written(tmp_path, "rocksdb", "incremental", 8)
    read, users = [], []
    for number in range(1, 25):
        scans.clear()
        newest = run(deployment, number, [(number, 0), (0, 1)])
        read.append("last" in scans)
        users.append(len(content(deployment, newest)["last"]))
    assert read == [number % 5 == 0 for number in range(24)]
    assert users == [*range(2, 10), *[9] * 16]
    manifest = open_checkpoint(deployment.catalog().get(NAME, newest).directory, own=True).manifest
    assert manifest is not None
    assert {part.name for part in manifest.side_data} == {expiring_name(name) for name in ("last", "per_item", "items")}
