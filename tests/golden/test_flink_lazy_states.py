"""Flink registers a state when its code first uses it: the headers of an operator's subtasks name different ones."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import StatelibError, UnsupportedError
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.model.checkpoint import OperatorState
from statelib.model.handles import FilePart, KeyGroupsSavepointStateHandle
from statelib.model.key_groups import all_key_groups
from statelib.model.state import StateDescriptor
from statelib.model.types import LONG
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.schemas.joined_states import join_states
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.tables.state_table import state_table
from statelib.savepoints.verification.snapshots import verify
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite
from statelib.serializers.type_text import parse_type
from tests.golden.flink_fixtures import ROOT, opened

LAZY = ROOT / "2.3.0" / "lazy-hashmap"
PATHS = [snapshot["path"] for snapshot in json.loads((LAZY / "about.json").read_text())["snapshots"]]
TRUTH = [json.loads(line) for line in (LAZY / "truth.jsonl").read_text().splitlines()]
ENTRIES = {(line["state"], line["key"]["v"], line.get("uk", {}).get("v")) for line in TRUTH}
"""The entries as state, key and user key; a list is one entry however many elements it has."""
CANONICAL = PATHS[0]


def lazy(path: str = CANONICAL) -> Checkpoint:
    return opened(LAZY, path)


def lines(snapshot: Checkpoint, state: str | None = None) -> list[str]:
    return sorted(export_lines(snapshot, state))


def true_lines(*states: str) -> list[str]:
    return [line for line in (LAZY / "truth.jsonl").read_text().splitlines() if json.loads(line)["state"] in states]


@pytest.mark.parametrize("path", PATHS)
def test_the_schema_is_the_union_over_all_handles(path: str) -> None:
    names = {state.name for state in lazy(path).schema().states}
    assert {"common", "map", "odd", "third"} <= names
    assert verify(lazy(path)).problems == ()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("state", ["common", "map", "odd", "third"])
def test_each_state_is_read_alone(path: str, state: str) -> None:
    table = state_table(lazy(path), state)
    parts = [part for split in table.splits(None, 4, 1) for part in table.read(split, ["key"])]
    keys = [key for part in parts for key in part["key"].to_pylist()]
    assert Counter(keys) == Counter(key for name, key, _ in ENTRIES if name == state)
    assert lines(lazy(path), state) == true_lines(state)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
@pytest.mark.parametrize("path", PATHS)
def test_states_are_restored_at_any_range(path: str, backend: str, tmp_path: Path) -> None:
    part, whole = lazy(path), all_key_groups(128)
    if backend == "rocksdb" and path != CANONICAL:
        pytest.skip("the heap's own stream")
    sources, schema = part.sources(), part.schema()
    restored = (
        restore_heap(schema, whole, sources, str(tmp_path / "scratch"))
        if backend == "heap"
        else restore_rocksdb(schema, whole, sources, str(tmp_path / "db"), "uid")
    )
    counted = {d.name: s.total_entries for d, s in zip(schema.states, restored.statistics(), strict=True)}
    restored.close()
    assert {name: n for name, n in counted.items() if n} == Counter(name for name, _, _ in ENTRIES)


def test_two_forms_of_the_snapshot_have_no_differences() -> None:
    assert not any(state.different for state in Diff(lazy(), lazy(PATHS[2])).states)


@pytest.mark.parametrize("dropped", ["common", "map", "odd", "third"])
def test_a_rewrite_drops_only_the_selected_state(dropped: str, tmp_path: Path) -> None:
    change = OperatorChange(drop=frozenset({dropped}))
    again = open_checkpoint(rewrite(lazy(), NewSavepoint(str(tmp_path), "again"), changes={"lazy": change}))
    names = {"common", "map", "odd", "third"} - {dropped}
    assert [line.partition(",")[2] for line in lines(again)] == [
        line.partition(",")[2] for line in sorted(true_lines(*names))
    ]


def test_entries_are_put_into_a_state_that_some_subtasks_had_not_registered(tmp_path: Path) -> None:
    keys = pa.array([f"new {n}" for n in range(200)])
    third = lazy().schema().state("third")
    change = OperatorChange(put={third: pa.table({"key": keys, "value": pa.array(range(200))})})
    again = open_checkpoint(rewrite(lazy(), NewSavepoint(str(tmp_path), "again"), changes={"lazy": change}))
    assert sorted(again.to_arrow("third")["value"].to_pylist()) == list(range(200))
    assert len(lines(again)) == 200 + len(true_lines("common", "map", "odd"))


def without_subtask(path: Path, gone: int, *, named: bool = True) -> Checkpoint:
    """Return the canonical savepoint as Flink writes it if one subtask has registered no keyed state yet. Flink
    names the subtask only if another operator of its task has state."""
    metadata, _ = decode_metadata((LAZY / CANONICAL / "_metadata").read_bytes())

    def changed(operator: OperatorState) -> OperatorState:
        keep = [(i, replace(s, keyed=None) if i == gone else s) for i, s in operator.subtasks if named or i != gone]
        return replace(operator, subtasks=tuple(keep))

    path.mkdir()
    for file in (LAZY / CANONICAL).iterdir():
        (path / file.name).write_bytes(file.read_bytes())
    operators = tuple(changed(o) if any(s.keyed for _, s in o.subtasks) else o for o in metadata.operators)
    (path / "_metadata").write_bytes(encode_metadata(replace(metadata, operators=operators)))
    return open_checkpoint(str(path))


@pytest.mark.parametrize("named", [True, False])
def test_a_subtask_without_state_stays_empty_unless_entries_are_put(named: bool, tmp_path: Path) -> None:
    saved = without_subtask(tmp_path / "source", 1, named=named)
    carried = open_checkpoint(rewrite(saved, NewSavepoint(str(tmp_path), "carried")))
    assert lines(carried) == lines(saved)
    assert [1 in part.keyed_handles for part in carried.each_operator()] == [False]
    keys = pa.array([f"new {n}" for n in range(200)])
    change = OperatorChange(put={StateDescriptor("more", saved.schema().state("third").kind, LONG): pa.table(
        {"key": keys, "value": pa.array(range(200))}
    )})  # fmt: skip
    again = open_checkpoint(rewrite(saved, NewSavepoint(str(tmp_path), "again"), changes={"lazy": change}))
    assert sorted(again.to_arrow("more")["value"].to_pylist()) == list(range(200))
    assert len(lines(again)) == 200 + len(lines(saved))


def test_a_rewrite_keeps_uids_if_the_metadata_contain_them(tmp_path: Path) -> None:
    again = open_checkpoint(rewrite(lazy(), NewSavepoint(str(tmp_path), "again"), renamed={"lazy": "eager"}))
    assert again.metadata.version == lazy().metadata.version == 6
    before, after = ([(o.name, o.uid) for o in snapshot.operators] for snapshot in (lazy(), again))
    assert after == [(name, "eager" if uid == "lazy" else uid) for name, uid in before]
    assert "eager" in dict(after).values()


def test_a_failed_rewrite_leaves_nothing(tmp_path: Path) -> None:
    keys = pa.table({"key": pa.array(["a"]), "value": pa.array(["no number"])})
    change = OperatorChange(put={lazy().schema().state("common"): keys})
    with pytest.raises(StatelibError):
        rewrite(lazy(), NewSavepoint(str(tmp_path), "again"), changes={"lazy": change})
    for path in PATHS[1:]:
        with pytest.raises(StatelibError) as caught:
            rewrite(lazy(path), NewSavepoint(str(tmp_path), "again"))
        assert caught.value.kind == "not-canonical"
    assert list(tmp_path.iterdir()) == []


def test_headers_that_contradict_each_other_are_refused_by_name(tmp_path: Path) -> None:
    handle = without_subtask(tmp_path / "source", 2).keyed_handles[3]
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    stream = handle.stream
    assert isinstance(stream, FilePart)
    file = tmp_path / "source" / stream.path.rpartition("/")[2]
    data = file.read_bytes()
    other = data.replace(b"base.LongSerializer$LongSerializerSnapshot", b"base.DateSerializer$DateSerializerSnapshot")
    assert other != data
    file.write_bytes(other)
    with pytest.raises(UnsupportedError, match=r"state 'common'.*long.*javadate") as caught:
        open_checkpoint(str(tmp_path / "source")).schema()
    assert caught.value.kind == "mixed-serializers"


def test_the_subclasses_that_the_subtasks_have_registered_are_combined() -> None:
    def state(text: str) -> StateDescriptor:
        return StateDescriptor("s", lazy().schema().state("common").kind, parse_type(text))

    one, other = "pojo<a.B; x: long; -pojo<a.C; y: int>>", "pojo<a.B; x: long; -pojo<a.D; z: int>>"
    joined = join_states(state(f"list<{one}>"), state(f"list<{other}>"))
    both = "list<pojo<a.B; x: long; -pojo<a.C; y: int>; -pojo<a.D; z: int>>>"
    assert joined is not None
    assert str(joined.value_type) == both
    assert join_states(joined, state(f"list<{other}>")) == joined
    assert join_states(state(one), state("pojo<a.B; x: int>")) is None
    assert join_states(state(one), state("pojo<a.B; x: long; -pojo<a.C; y: long>>")) is None
    assert join_states(state("tuple<long, int>"), state("tuple<long>")) is None
