"""Windows and timers of a pipeline, restored by a real Flink: each entry in its window, each timer in its service."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.backends.rocksdb.writing import new_tables
from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.formats.sst.sorted_table import SEQUENCE_ZERO
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from tests.interop.flink_kit import Case, Flink
from tests.interop.seen_lines import comparable, operator_to_see
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

TOLL = """\
name: toll
source: {path: "{data}/{start}-{end}", columns: {plate: string, gate: string, n: long, t: instant}}
key: [plate]
states:
  sums: {kind: reducing, value: {agg: sum, of: n}, window: {time: t, tumbling: 1h, retain: 12h}}
  gates: {kind: map, user_key: gate, value: {agg: count}, window: {time: t, tumbling: 2h, retain: 12h}}
  means: {kind: aggregating, value: {agg: avg, of: n}, window: {time: t, sliding: {size: 2h, slide: 1h}, retain: 6h}}
  lists: {kind: list, value: {agg: collect, of: n}, window: {time: t, tumbling: 6h, retain: 6h}}
  seen:
    kind: value
    function: tests.interop.test_flink_restores_windows:update
    on_timer: tests.interop.test_flink_restores_windows:on_timer
    fields: {passes: long}
backend: BACKEND
parallelism: 3
checkpoint: {strategy: STRATEGY}
"""
HOUR = 3_600_000


def update(events: pa.Table, state: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Count, and set timers for the time of each event, for two days later, and for one day later in processing
    time."""
    moments = events["t"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_numpy()
    at = {"event_time": moments + 48 * HOUR, "processing_time": moments + 24 * HOUR}
    timers = {name: pa.array(times).cast(pa.timestamp("ms", "UTC")) for name, times in at.items()}
    passes = pa.array(np.ones(len(state), np.int64))
    return state.set_column(1, "passes", passes), pa.table({"plate": events["plate"], **timers})


def on_timer(timers: pa.Table, state: pa.Table) -> pa.Table:
    return state.slice(0, 0)


def passes(number: int, rows: int = 400) -> pa.Table:
    random = np.random.default_rng(number)
    start = day(number).start_ms
    times = pa.array(random.integers(start, start + 24 * HOUR, rows)).cast(pa.timestamp("ms", "UTC"))
    return pa.table(
        {
            "plate": pa.array([f"é-{n}" for n in random.integers(0, 40, rows)]),
            "gate": pa.array([f"gate {n}" for n in random.integers(0, 4, rows)]),
            "n": pa.array(random.integers(-100, 100, rows)),
            "t": times.cast(pa.timestamp("ns", "UTC")),
        }
    )


def saved_as(form: str, root: Path, backend: str, strategy: str) -> Checkpoint:
    """Take two days, then a savepoint of this form."""
    (pipelines := root / "pipelines").mkdir(parents=True)
    (pipelines / "toll.yaml").write_text(TOLL.replace("BACKEND", backend).replace("STRATEGY", strategy))
    deployment = new_deployment(root, root, pipelines)
    for number in (1, 2):
        checkpoint_of(deployment, "toll", number, passes(number))
    pipeline = deployment.pipeline("toll")
    begun = begin_savepoint(deployment, pipeline, format=form, target=None, note="", owner="test", key="k")
    publish_here(deployment, pipeline, begun.checkpoint_id)
    return open_checkpoint(register(deployment, pipeline, begun.checkpoint_id).directory)


@pytest.mark.parametrize(
    ("backend", "strategy", "form"),
    [
        ("heap", "canonical", "canonical"),
        ("rocksdb", "incremental", "canonical"),
        ("heap", "full", "native"),
        ("rocksdb", "full", "native"),
    ],
)
def test_flink_restores_each_window_and_each_timer(
    tmp_path: Path, flink_1: Flink, backend: str, strategy: str, form: str
) -> None:
    saved = saved_as(form, tmp_path, backend, strategy)
    lines = list(export_lines(saved, None, str(tmp_path)))
    kinds = ("eventTimer", "procTimer", "timewindow")
    assert all(sum(f'"{kind}"' in line for line in lines) > 100 for kind in kinds)
    backends = {"heap": ["hashmap"], "rocksdb": ["rocksdb"]}[backend] if form == "native" else ["hashmap", "rocksdb"]
    directory, operator = Path(saved.directory.removeprefix("file://")), operator_to_see("toll", saved.schema())
    cases = [Case(directory, (operator,), name, p, 128) for name in backends for p in (1, 2)]
    for restored in flink_1.restore(cases):
        assert restored.error == ""
        assert comparable(restored.lines) == comparable(lines)


@pytest.mark.parametrize("version", ["1", "2"])
def test_flink_restores_tables_that_were_written_in_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, version: str
) -> None:
    """Restored as they are, and cut to a part of the key groups."""
    flink: Flink = request.getfixturevalue(f"flink_{version}")
    monkeypatch.setattr(new_tables, "FEWEST_ENTRIES", 1)
    saved = saved_as("native", tmp_path, "rocksdb", "full")
    lines = list(export_lines(saved, None, str(tmp_path)))
    directory, operator = Path(saved.directory.removeprefix("file://")), operator_to_see("toll", saved.schema())
    stored = b"".join(path.read_bytes() for path in directory.iterdir())
    assert stored.count(SEQUENCE_ZERO) >= 3 * 8, "the tables of three subtasks"
    for restored in flink.restore([Case(directory, (operator,), "rocksdb", p, 128) for p in (1, 2, 3)]):
        assert restored.error == ""
        assert comparable(restored.lines) == comparable(lines)
