"""A real Flink restores its own snapshots after ``savepoint rewrite``, with both backends."""

from pathlib import Path

import pyarrow as pa

from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite
from tests.interop.flink_kit import Case, Flink, OperatorToSee, StateToSee, TimersToSee
from tests.interop.real_fixtures import ROOT

LAZY = OperatorToSee(
    "eager", "string",
    (StateToSee("common", "value", "long"), StateToSee("map", "map", "long", "string"),
     StateToSee("third", "reducing", "long")),
)  # fmt: skip
OLDER = OperatorToSee(
    "newer", "string",
    (StateToSee("last", "value", "long"), StateToSee("seen", "list", "long"),
     StateToSee("tens", "map", "long", "string"), StateToSee("sum of three", "reducing", "long")),
    (TimersToSee("user-timers"),),
)  # fmt: skip


def cases(directory: str, operator: OperatorToSee) -> list[Case]:
    snapshot = Path(directory.removeprefix("file://"))
    return [
        Case(snapshot, (operator,), backend, parallelism, 128, allow_non_restored_state=True)
        for backend in ("hashmap", "rocksdb")
        for parallelism in (1, 3)
    ]


def test_a_savepoint_of_flink_1_12_is_restored_under_its_new_uid(tmp_path: Path, flink_2: Flink) -> None:
    """RocksDB's canonical stream behind the heap's handle: the heap would not read it so."""
    folder = ROOT / "1.12.5" / "older-rocksdb"
    (path,) = folder.glob("savepoint-*")
    again = rewrite(open_checkpoint(str(path)), NewSavepoint(str(tmp_path), "again"), renamed={"keyed": "newer"})
    truth = [line.replace('"op":"keyed"', '"op":"newer"') for line in (folder / "truth.jsonl").read_text().splitlines()]
    for restored in flink_2.restore(cases(again, OLDER)):
        assert restored.error == ""
        assert sorted(restored.lines) == sorted(truth)


def test_states_that_some_subtasks_had_not_registered_are_restored(tmp_path: Path, flink_2: Flink) -> None:
    folder = ROOT / "2.3.0" / "lazy-hashmap"
    lazy = open_checkpoint(str(folder / "savepoint-000000-b399ead6d30a"))
    keys = pa.array([f"new {n}" for n in range(200)])
    put = {lazy.schema().state("third"): pa.table({"key": keys, "value": pa.array(range(200))})}
    change = OperatorChange(drop=frozenset({"odd"}), put=put)
    again = rewrite(lazy, NewSavepoint(str(tmp_path), "again"), changes={"lazy": change}, renamed={"lazy": "eager"})
    for restored in flink_2.restore(cases(again, LAZY)):
        assert restored.error == ""
        assert len(restored.lines) == 200 + 10
