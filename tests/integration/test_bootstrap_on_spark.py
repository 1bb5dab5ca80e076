"""Tables become a savepoint in Spark: what the file describes, in whole key groups, or nothing at all."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.coordinator.whole_savepoint import check_whole
from statelib.definition.bootstrap import Bootstrap, load_bootstrap
from statelib.errors import StatelibError
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.operator_content import operator_contents
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.spark.imports.bootstrap import BootstrapResult, run_bootstrap
from tests.support.worlds import CHECKOUT

ROWS = 2000
TAILS = [f"N{n}é" for n in range(ROWS)]
FILE = """\
name: flights
max_parallelism: 300
parallelism: 3
operators:
  activity:
    key: {type: string, of: tail}
    rows: {parquet: ROOT/activity}
    states:
      seen: {kind: value, type: "row<n: long, at: instant>", of: {n: flights, at: at}}
      recent: {kind: list, type: string, of: recent}
      soon: {kind: value, type: ttl<long>, of: {last_access_ms: touched, value: flights}}
      windowed: {kind: reducing, type: long, of: flights, namespace: {type: timewindow, of: {start: at, end: at}}}
      _timer_state/event_user-timers: {kind: timers, of: at}
      per_dest: {kind: map, user_key: {type: string, of: dest}, type: long, of: n, rows: {parquet: ROOT/dests.parquet}}
  people:
    key: {type: "pojo<a.Key; id: int, name: string>", of: [id, who.name], hash: {of: [id, name], start: 0}}
    states:
      weight: {kind: reducing, type: double, of: x, rows: {parquet: ROOT/people.parquet}}
    operator_states:
      seen: {mode: union, type: int, of: id, rows: {parquet: ROOT/people.parquet}}
  rules:
    rows: {parquet: ROOT/people.parquet}
    operator_states:
      limits: {mode: broadcast, user_key: {type: int, of: id}, type: double, of: x}
      splits: {mode: list, type: "tuple<int, double>", of: [id, x]}
"""


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    (tmp_path / "activity").mkdir()
    moments = pa.array([10**12 + n for n in range(ROWS)]).cast(pa.timestamp("ms", "UTC"))
    activity = {"tail": TAILS, "flights": range(ROWS), "touched": range(ROWS)}
    columns = {name: pa.array(values) for name, values in activity.items()}
    recent = pa.array([[f"d{i}" for i in range(n % 3 + 1)] for n in range(ROWS)])
    table = pa.table({**columns, "at": moments, "recent": recent})
    for part in range(3):
        pq.write_table(table.slice(part * 700, 700), tmp_path / "activity" / f"{part}.parquet")
    dests = {"tail": TAILS * 2, "dest": ["a"] * ROWS + ["b"] * ROWS, "n": list(range(2 * ROWS))}
    pq.write_table(pa.table(dests), tmp_path / "dests.parquet")
    who = [{"name": None if n % 5 == 0 else f"n{n}"} for n in range(300)]
    people = {"id": pa.array(range(300), pa.int32()), "who": who, "x": [n / 2 for n in range(300)]}
    pq.write_table(pa.table(people), tmp_path / "people.parquet")
    return tmp_path


def described(root: Path, text: str = FILE) -> Bootstrap:
    (path := root / "b.yaml").write_text(text.replace("ROOT", str(root)))
    return load_bootstrap(path)


def run(spark: SparkSession, root: Path, bootstrap: Bootstrap, number: int = 1) -> BootstrapResult:
    return run_bootstrap(spark, bootstrap, NewSavepoint(str(root / "out"), bootstrap.name, number), open_checkpoint)


def held(opened: Checkpoint, uid: str, state: str, *columns: str) -> dict[object, object]:
    table = opened.select(uid).to_arrow(state)
    keys = zip(*(map(str, table[name].to_pylist()) for name in ("key", *columns)), strict=True)
    values = table["value" if "value" in table.column_names else "timestamp"].to_pylist()
    return dict(zip(keys, values, strict=True))


def test_every_row_becomes_an_entry_in_the_key_group_of_its_key(spark: SparkSession, tables: Path) -> None:
    done = run(spark, tables, described(tables))
    opened = open_checkpoint(done.directory)
    check_whole(opened.operators)
    each = dict.fromkeys(("seen", "recent", "soon", "windowed", "_timer_state/event_user-timers"), ROWS)
    assert done.entries == {
        "activity": {**each, "per_dest": 2 * ROWS},
        "people": {"weight": 300, "seen": 300},
        "rules": {"limits": 300, "splits": 300},
    }
    moments = [datetime.fromtimestamp(10**9 + n / 1000, UTC) for n in range(ROWS)]
    assert held(opened, "activity", "recent") == {
        (t,): [f"d{i}" for i in range(n % 3 + 1)] for n, t in enumerate(TAILS)
    }
    assert held(opened, "activity", "per_dest", "user_key") == {
        **{(t, "a"): n for n, t in enumerate(TAILS)}, **{(t, "b"): n + ROWS for n, t in enumerate(TAILS)},
    }  # fmt: skip
    seen = held(opened, "activity", "seen")
    assert {key: row["f0"] for key, row in seen.items()} == {(t,): n for n, t in enumerate(TAILS)}
    timers = held(opened, "activity", "_timer_state/event_user-timers")
    assert timers == {(t,): moment for t, moment in zip(TAILS, moments, strict=True)}
    soon = held(opened, "activity", "soon")
    assert soon == {(t,): {"last_access_ms": n, "value": n} for n, t in enumerate(TAILS)}
    windows = opened.select("activity").to_arrow("windowed")["namespace"].to_pylist()
    assert sorted(w["start"] for w in windows) == moments
    assert len(held(opened, "people", "weight")) == 300
    own = {c.descriptor.name: c for o in opened.operators for c in operator_contents(opened, o)}
    assert own["seen"].values.to_pylist() == own["limits"].keys.to_pylist() == list(range(300))
    assert own["limits"].values.to_pylist() == [n / 2 for n in range(300)]
    assert own["splits"].values.to_pylist() == [{"f0": n, "f1": n / 2} for n in range(300)]


def test_a_state_of_a_snapshot_can_be_the_source(spark: SparkSession, tables: Path) -> None:
    first = run(spark, tables, described(tables))
    text = f"""\
name: again
operators:
  copy:
    key: {{type: string, of: key}}
    rows: {{snapshot: "{first.directory}", operator: activity, state: per_dest}}
    states:
      m: {{kind: map, user_key: {{type: string, of: user_key}}, type: long, of: value}}
"""
    again = open_checkpoint(run(spark, tables, described(tables, text)).directory)
    assert held(again, "copy", "m", "user_key") == held(
        open_checkpoint(first.directory), "activity", "per_dest", "user_key"
    )


def test_operator_state_alone_can_be_made_from_a_state_of_a_snapshot(spark: SparkSession, tables: Path) -> None:
    first = run(spark, tables, described(tables))
    text = f"""\
name: rules
parallelism: 2
operators:
  rules:
    rows: {{snapshot: "{first.directory}", operator: activity, state: seen}}
    operator_states:
      times: {{mode: broadcast, user_key: {{type: string, of: key}}, type: instant, of: value.f1}}
"""
    done = run(spark, tables, described(tables, text))
    assert done.entries == {"rules": {"times": ROWS}}
    again = open_checkpoint(done.directory)
    ((content,),) = (operator_contents(again, operator) for operator in again.operators)
    seen = held(open_checkpoint(first.directory), "activity", "seen")
    assert dict(zip(content.keys.to_pylist(), content.values.to_pylist(), strict=True)) == {
        key: row["f1"] for (key,), row in seen.items()
    }


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("rows: {parquet: ROOT/dests.parquet}", "rows: {parquet: ROOT/none}", "no-source"),
        ("type: long, of: n, rows", "type: long, of: m, rows", "missing-column"),
        ("user_key: {type: string, of: dest}", "user_key: {type: string, of: tail}", "duplicate-key"),
        ("{n: flights, at: at}", "{n: tail, at: at}", "bad-value-type"),
        ("of: [id, who.name]", "of: [id]", "bad-columns"),
        ("of: [id, x]}", "of: [id, y]}", "missing-column"),
        (
            "user_key: {type: int, of: id}, type: double",
            "user_key: {type: double, of: none}, type: double",
            "missing-column",
        ),
        ("{mode: union, type: int, of: id", "{mode: union, type: string, of: who.name", "null-value"),
    ],
)
def test_rows_that_do_not_fit_the_description_leave_no_file(
    spark: SparkSession, tables: Path, old: str, new: str, kind: str
) -> None:
    assert old in FILE
    with pytest.raises(StatelibError) as caught:
        run(spark, tables, described(tables, FILE.replace(old, new)))
    assert caught.value.kind == kind
    assert not (tables / "out" / "savepoint-flights-1").exists()


def test_files_with_other_columns_or_types_are_refused(spark: SparkSession, tables: Path) -> None:
    """Spark takes the types from one file: a long of 70,000 would become a short of 4,464, and no column a null."""
    last = tables / "activity" / "2.parquet"
    whole = pq.read_table(last)
    for part in range(2):
        file = tables / "activity" / f"{part}.parquet"
        shorts = pa.array(range(700), pa.int16())
        pq.write_table(pq.read_table(file).set_column(1, "flights", shorts), file)
    with pytest.raises(StatelibError, match="column flights is bigint, which Spark would read as smallint") as caught:
        run(spark, tables, described(tables))
    assert caught.value.kind == "column-type"
    pq.write_table(whole.set_column(1, "flights", pa.array(range(600), pa.int16())).drop_columns(["recent"]), last)
    with pytest.raises(StatelibError, match=r"2\.parquet has no column recent") as caught:
        run(spark, tables, described(tables))
    assert caught.value.kind == "missing-column"
    assert not (tables / "out").exists()


def test_a_file_that_spark_would_not_read_is_refused(spark: SparkSession, tables: Path) -> None:
    (tables / "activity" / "more").mkdir()
    (tables / "activity" / "2.parquet").rename(tables / "activity" / "more" / "2.parquet")
    with pytest.raises(StatelibError, match=r"1 of 3 files would not be read: more/2\.parquet") as caught:
        run(spark, tables, described(tables))
    assert caught.value.kind == "unread-files"
    assert not (tables / "out").exists()


def test_a_directory_that_is_taken_is_refused(spark: SparkSession, tables: Path) -> None:
    run(spark, tables, described(tables))
    with pytest.raises(StatelibError) as caught:
        run(spark, tables, described(tables))
    assert caught.value.kind == "location-taken"


def test_the_command_line_runs_the_job_and_rewrites_its_savepoint(tables: Path) -> None:
    def statelib(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "statelib", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=CHECKOUT)

    described(tables)
    file, out = str(tables / "b.yaml"), str(tables / "out")
    made = statelib("bootstrap", file, "--target", out, "--master", "local[1]", "--json")
    assert made.returncode == 0, made.stderr
    directory = json.loads(made.stdout)["directory"]
    again = statelib("savepoint", "rewrite", directory, "-t", out, "--drop-operator", "people",
                     "--drop-state", "activity/recent", "--json")  # fmt: skip
    assert again.returncode == 0, again.stderr
    names = [s.name for s in open_checkpoint(json.loads(again.stdout)["directory"]).schema().states]
    assert names == ["seen", "soon", "windowed", "_timer_state/event_user-timers", "per_dest"]
    taken = statelib("bootstrap", file, "--target", out, "--master", "local[1]")
    assert (taken.returncode, "there is a savepoint already" in taken.stderr) == (2, True)
    (tables / "people.parquet").write_bytes(b"no Parquet")
    failed = statelib("bootstrap", file, "--target", out, "--id", "2", "--master", "local[1]")
    assert (failed.returncode, "people.parquet" in failed.stderr) == (2, True)
    assert "org.apache" not in failed.stderr, "no line of Java"
    wrong = statelib("bootstrap", file, "--target", out, "--check")
    assert (wrong.returncode, "activity, people, rules" in wrong.stdout) == (0, True)
