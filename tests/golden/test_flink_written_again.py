"""Canonical savepoints of real jobs, read into columns and written anew, hold the same entries, byte for byte."""

import json
from pathlib import Path

import pytest

from statelib.errors import StatelibError, UnsupportedError
from statelib.formats.keyed.header_parts import header_parts
from statelib.model.handles import KeyGroupsSavepointStateHandle
from statelib.model.key_hash import FieldsHash
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite
from tests.support.extent import cases

ROOT = Path(__file__).parent / "flink"
FIXTURES = sorted(
    f"{path.parents[2].name}/{path.parents[1].name}"
    for path in ROOT.glob("*/*/savepoint-*/_metadata")
    if "canonical" in path.parents[1].name
)


def opened(fixture: str) -> Checkpoint:
    (metadata,) = (ROOT / fixture).glob("savepoint-*/_metadata")
    return open_checkpoint(str(metadata.parent))


def contents(part: Checkpoint) -> dict[str, list[tuple[bytes, bytes]]]:
    """Return the sorted (key, value) pairs of each state of one operator."""
    entries_read: dict[str, list[tuple[bytes, bytes]]] = {}
    names = [s.name for s in part.schema().states]
    for index, rows in part.rows():
        entries_read.setdefault(names[index], []).extend(zip(rows.keys.to_list(), rows.values.to_list(), strict=True))
    return {name: sorted(entries) for name, entries in entries_read.items()}


def exported(part: Checkpoint, state: str) -> list[str]:
    """Return the exported lines without the operator's name, which metadata of version 3 do not have."""
    return sorted(line.partition('"state":')[2] for line in export_lines(part, state))


def header_of(part: Checkpoint) -> dict[str, bytes]:
    handle = part.handles()[0]
    assert isinstance(handle, KeyGroupsSavepointStateHandle)
    parts = header_parts(part.reader().read(handle.stream))
    return {"": parts.key, **parts.states}


@pytest.mark.parametrize(("fixture", "compressed"), cases(FIXTURES, [False, True]))
def test_a_savepoint_that_is_written_anew_has_the_same_entries(fixture: str, compressed: bool, tmp_path: Path) -> None:
    source, changes, in_columns = opened(fixture), {}, 0
    for part in source.each_operator():
        put = {}
        try:
            states = part.schema().states
        except UnsupportedError as reason:
            pytest.skip(str(reason))
        for descriptor in states:
            try:
                put[descriptor] = part.to_arrow(descriptor.name)
                in_columns += len(put[descriptor])
            except UnsupportedError:
                continue  # Its entries are copied as they are.
        rule = FieldsHash(("id", "name"), start=0) if "pojo" in fixture else None
        changes[part.keyed_operator().operator_id.hex()] = OperatorChange(put=put, key_hash=rule)
    try:
        directory = rewrite(source, NewSavepoint(str(tmp_path), "again", compressed=compressed), changes=changes)
    except UnsupportedError as reason:
        pytest.skip(str(reason))
    again = open_checkpoint(directory)
    assert [o.operator_id for o in again.operators] == [o.operator_id for o in source.operators]
    for part in source.each_operator():
        other = again.select(part.keyed_operator().operator_id.hex())
        before, after = contents(part), contents(other)
        assert before.keys() == after.keys()
        for state in [name for name, entries in before.items() if entries != after[name]]:
            # Flink has more than one form for some numbers, and an additional flag for a null map value on the heap.
            assert [key for key, _ in before[state]] == [key for key, _ in after[state]]
            assert exported(other, state) == exported(part, state)
        assert other.schema() == part.schema()
        remaining, now = header_of(part), header_of(other)
        assert now == {name: remaining[name] for name in now}
    lines = [json.loads(line) for line in (ROOT / fixture / "truth.jsonl").read_text().splitlines()]
    assert in_columns or not any("kg" in line for line in lines)


def test_the_fixtures_exist() -> None:
    assert len(FIXTURES) >= 41


@pytest.mark.parametrize("fixture", ["1.20.5/kinds-hashmap-canonical-p4-files", "1.20.5/opstate-canonical-p2"])
def test_an_unchanged_rewrite_has_files_with_the_same_bytes(fixture: str, tmp_path: Path) -> None:
    source = opened(fixture)
    again = open_checkpoint(rewrite(source, NewSavepoint(str(tmp_path), "again")))
    before, after = source.streams(), again.streams()
    assert len(before) == len(after) > 0
    for old, new in zip(before, after, strict=True):
        assert bytes(source.reader().read(old)) == bytes(again.reader().read(new))
    files = {path.name for path in (tmp_path / "savepoint-again-1").iterdir()} - {"_metadata"}
    assert len(files) == len({stream for stream in before if hasattr(stream, "path")})


def test_native_savepoints_are_refused(tmp_path: Path) -> None:
    (metadata,) = (ROOT / "1.20.5/kinds-hashmap-native-p2").glob("savepoint-*/_metadata")
    source = open_checkpoint(str(metadata.parent))
    with pytest.raises(StatelibError) as caught:
        rewrite(source, NewSavepoint(str(tmp_path), "again"), changes={"keyed": OperatorChange(frozenset({"v"}))})
    assert caught.value.kind in ("not-canonical", "unknown-state")
    with pytest.raises(StatelibError) as caught:
        rewrite(source, NewSavepoint(str(tmp_path), "again"))
    assert caught.value.kind == "not-canonical"
    assert list(tmp_path.iterdir()) == []
