"""A bootstrap file with timers, windows and operator state of every kind: a real Flink restores what it describes."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from statelib.definition.bootstrap import load_bootstrap
from statelib.savepoints.lines import export_all_lines
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.spark.imports.bootstrap import run_bootstrap
from tests.interop.flink_kit import Case, Flink, OperatorToSee, StateToSee
from tests.interop.seen_lines import comparable, operator_to_see

ROWS = 200
FILE = """\
name: history
max_parallelism: 200
parallelism: 3
operators:
  counted:
    key: {type: string, of: tail}
    rows: {parquet: ROOT/rows.parquet}
    states:
      seen: {kind: value, type: "row<n: long, at: instant>", of: {n: n, at: at}}
      window-contents: {kind: reducing, type: long, of: n, namespace: {type: timewindow, of: {start: at, end: later}}}
      _timer_state/event_user-timers: {kind: timers, of: later}
      _timer_state/processing_user-timers: {kind: timers, of: later}
      _timer_state/event_window-timers:
        {kind: timers, of: later, namespace: {type: timewindow, of: {start: at, end: later}}}
    operator_states:
      split: {mode: list, type: string, of: tail}
      everywhere: {mode: union, type: "tuple<string, long>", of: [tail, n]}
  rules:
    rows: {parquet: ROOT/rows.parquet}
    operator_states:
      limits: {mode: broadcast, user_key: {type: string, of: tail}, type: long, of: n}
"""
SPLIT = StateToSee("split", "opList", "string")
EVERYWHERE = StateToSee("everywhere", "opUnion", "tuple<string, long>")
LIMITS = StateToSee("limits", "broadcast", "long", "string")


def test_flink_restores_all_kinds_of_state_and_timers(tmp_path: Path, flink_1: Flink, spark: SparkSession) -> None:
    far = 4_000_000_000_000  # No processing-time timer fires yet.
    moments = pa.array(range(far, far + ROWS)).cast(pa.timestamp("ms", "UTC"))
    later = pa.array(range(far + 1000, far + 1000 + ROWS)).cast(pa.timestamp("ms", "UTC"))
    rows = pa.table({"tail": [f"N{n}é" for n in range(ROWS)], "n": range(ROWS), "at": moments, "later": later})
    pq.write_table(rows, tmp_path / "rows.parquet")
    (path := tmp_path / "b.yaml").write_text(FILE.replace("ROOT", str(tmp_path)))
    bootstrap = load_bootstrap(path)
    done = run_bootstrap(spark, bootstrap, NewSavepoint(str(tmp_path), "history"), open_checkpoint)
    opened = open_checkpoint(done.directory)
    text = "\n".join(export_all_lines(opened, None))
    for operator, uid in zip(opened.operators, bootstrap.operators, strict=True):
        text = text.replace(operator.operator_id.hex(), uid)
    wanted = text.splitlines()
    kinds = ("value", "reducing", "eventTimer", "procTimer", "opList", "opUnion", "broadcast")
    counts = {kind: sum(f'"kind":"{kind}"' in line for line in wanted) for kind in kinds}
    assert counts == {**dict.fromkeys(kinds, ROWS), "eventTimer": 2 * ROWS}
    keyed = operator_to_see("counted", bootstrap.operator("counted").schema)
    counted = OperatorToSee("counted", keyed.key, (*keyed.states, SPLIT, EVERYWHERE), keyed.timers)
    operators = (counted, OperatorToSee("rules", None, (LIMITS,)))
    directory = Path(done.directory.removeprefix("file://"))
    cases = [Case(directory, operators, backend, p, 200) for backend, p in (("hashmap", 2), ("rocksdb", 4))]
    for restored in flink_1.restore(cases):
        assert restored.error == ""
        assert comparable(restored.lines) == comparable(wanted)
