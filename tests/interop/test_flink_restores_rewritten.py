"""A real Flink restores its own snapshots after ``savepoint rewrite``, with both backends."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
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
    """The snapshot has RocksDB's canonical stream behind the heap's handle, which the heap could not read."""
    folder = ROOT / "1.12.5" / "older-rocksdb"
    (path,) = folder.glob("savepoint-*")
    again = rewrite(open_checkpoint(str(path)), NewSavepoint(str(tmp_path), "again"), renamed={"keyed": "newer"})
    truth = [line.replace('"op":"keyed"', '"op":"newer"') for line in (folder / "truth.jsonl").read_text().splitlines()]
    for restored in flink_2.restore(cases(again, OLDER)):
        assert restored.error == ""
        assert sorted(restored.lines) == sorted(truth)


def test_a_subtask_that_the_metadata_does_not_name_has_no_state(tmp_path: Path, flink_1: Flink) -> None:
    folder = ROOT / "1.12.5" / "older-rocksdb"
    (path,) = folder.glob("savepoint-*")
    metadata, _ = decode_metadata((path / "_metadata").read_bytes())
    index, keyed = next((i, o) for i, o in enumerate(metadata.operators) if any(state.keyed for _, state in o.subtasks))
    (number, gone), *others = keyed.subtasks
    assert gone.keyed is not None
    shutil.copytree(path, tmp_path / "source")
    operators = (*metadata.operators[:index], replace(keyed, subtasks=tuple(others)), *metadata.operators[index + 1 :])
    (tmp_path / "source" / "_metadata").write_bytes(encode_metadata(replace(metadata, operators=operators)))
    source = open_checkpoint(str(tmp_path / "source"))
    again = rewrite(source, NewSavepoint(str(tmp_path), "again"), renamed={"keyed": "newer"})
    lines = [line.replace('"op":"keyed"', '"op":"newer"') for line in (folder / "truth.jsonl").read_text().splitlines()]
    groups = gone.keyed.key_group_range
    remaining = [line for line in lines if not groups.start <= json.loads(line)["kg"] <= groups.end]
    assert number == 0
    assert 0 < len(remaining) < len(lines)
    for restored in flink_1.restore(cases(again, OLDER)):
        assert restored.error == ""
        assert sorted(restored.lines) == sorted(remaining)


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
