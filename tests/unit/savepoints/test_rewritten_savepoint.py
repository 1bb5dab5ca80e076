"""One part of a savepoint is changed, and the rest is copied byte for byte."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError, StatelibError
from statelib.formats.manifest.trailer import SIGNATURE
from statelib.formats.metadata.operator_id import operator_id
from statelib.formats.text.annotated import annotate_metadata
from statelib.model.checkpoint import SideDataRecord
from statelib.model.handles import ByteStreamStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING, Opaque
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.writing.new_savepoint import NewSavepoint, SavepointWriter
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite
from statelib.wire.writer import Writer
from tests.unit.formats.test_manifest import MANIFEST

COUNT = StateDescriptor("count", StateKind.VALUE, LONG)
SEEN = StateDescriptor("seen", StateKind.LIST, STRING)
BY_DAY = StateDescriptor("by_day", StateKind.MAP, LONG, STRING)
SCHEMA = KeyedStateSchema(STRING, 200, (COUNT, SEEN, BY_DAY))
KEYS = pa.array([f"key {n}" for n in range(300)])


def tables() -> dict[str, pa.Table]:
    return {
        "count": pa.table({"key": KEYS, "value": pa.array(range(300))}),
        "seen": pa.table({"key": KEYS, "value": pa.array([["a", "b,c", ""][: n % 3 + 1] for n in range(300)])}),
        "by_day": pa.table({"key": KEYS, "user_key": KEYS, "value": pa.array([None, 2, 3] * 100, pa.int64())}),
    }


@pytest.fixture
def saved(tmp_path: Path) -> Checkpoint:
    with SavepointWriter(NewSavepoint(str(tmp_path), "first")) as writer:
        writer.add(KeyedOperator("counts", SCHEMA, 3), tables())
        writer.add(KeyedOperator("other", SCHEMA, 2), {"count": tables()["count"]})
        return open_checkpoint(writer.publish())


def pairs(opened: Checkpoint, uid: str, state: str) -> list[tuple[str, object]]:
    table = opened.select(uid).to_arrow(state)
    return sorted(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True), key=repr)


def data(opened: Checkpoint, uid: str) -> list[bytes]:
    part = opened.select(uid)
    return [bytes(part.reader().read(handle.stream)) for handle in part.handles()]


def names(opened: Checkpoint, uid: str) -> list[str]:
    return [s.name for s in opened.select(uid).schema().states]


def test_the_metadata_name_statelib_as_the_writer(saved: Checkpoint) -> None:
    """The savepoint has no manifest, only a signature. Without the signature it is the same savepoint."""
    assert (saved.manifest, saved.written_by) == (None, "statelib")
    fields = annotate_metadata(saved.metadata_bytes)
    assert [part.problem for part in fields] == [""]
    (file,) = Path(saved.directory.removeprefix("file://")).glob("_metadata")
    file.write_bytes(saved.metadata_bytes.removesuffix(SIGNATURE))
    unsigned = open_checkpoint(saved.directory)
    assert (unsigned.written_by, unsigned.metadata) == ("flink", saved.metadata)
    file.write_bytes(saved.metadata_bytes[:-1])
    with pytest.raises(CorruptStateError, match="unknown bytes after"):
        open_checkpoint(saved.directory)


def test_an_operator_is_not_changed_under_two_names(saved: Checkpoint, tmp_path: Path) -> None:
    changes = {
        "counts": OperatorChange(frozenset({"seen"})),
        operator_id("counts").hex(): OperatorChange(frozenset({"by_day"})),
    }
    with pytest.raises(StatelibError, match="is named twice") as refusal:
        rewrite(saved, NewSavepoint(str(tmp_path), "second"), changes=changes)
    assert refusal.value.kind == "bad-change"


def test_added_states_are_read_back(saved: Checkpoint) -> None:
    for uid, states in (("counts", tables()), ("other", {"count": tables()["count"]})):
        for name, table in states.items():
            expected = zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)
            assert pairs(saved, uid, name) == sorted(expected, key=repr)
    assert pairs(saved, "other", "seen") == []
    assert [len(saved.select(uid).handles()) for uid in ("counts", "other")] == [3, 2]


def test_only_the_dropped_state_is_removed(saved: Checkpoint, tmp_path: Path) -> None:
    change = OperatorChange(drop=frozenset({"seen"}))
    again = open_checkpoint(rewrite(saved, NewSavepoint(str(tmp_path), "second"), changes={"counts": change}))
    assert names(again, "counts") == ["count", "by_day"]
    for state in ("count", "by_day"):
        assert pairs(again, "counts", state) == pairs(saved, "counts", state)
    assert data(again, "other") == data(saved, "other")


def test_the_state_beside_one_of_a_users_serializer_can_be_changed(tmp_path: Path) -> None:
    snapshot = Writer()
    snapshot.utf("com.acme.MoneySerializer$Snapshot")
    snapshot.i32(3)
    money = StateDescriptor("money", StateKind.VALUE, Opaque("com.acme.MoneySerializer", "", snapshot.getvalue()))
    stored = {"money": pa.table({"key": KEYS, "value": pa.array([b"\x01\x02"] * 300)}), "count": tables()["count"]}
    with SavepointWriter(NewSavepoint(str(tmp_path), "first")) as writer:
        writer.add(KeyedOperator("counts", KeyedStateSchema(STRING, 200, (money, COUNT)), 3), stored)
        saved = open_checkpoint(writer.publish())
    change = OperatorChange(drop=frozenset({"count"}))
    again = open_checkpoint(rewrite(saved, NewSavepoint(str(tmp_path), "second"), changes={"counts": change}))
    assert names(again, "counts") == ["money"]
    assert pairs(again, "counts", "money") == pairs(saved, "counts", "money")


def test_a_dropped_operator_is_removed(saved: Checkpoint, tmp_path: Path) -> None:
    again = open_checkpoint(rewrite(saved, NewSavepoint(str(tmp_path), "second"), drop_operators=["counts"]))
    assert len(again.operators) == 1
    assert data(again, "other") == data(saved, "other")


def test_the_uid_of_an_operator_can_be_changed(saved: Checkpoint, tmp_path: Path) -> None:
    place = NewSavepoint(str(tmp_path), "second")
    again = open_checkpoint(rewrite(saved, place, renamed={"counts": "totals"}))
    assert [o.operator_id for o in again.operators] == [operator_id("totals"), operator_id("other")]
    assert data(again, "totals") == data(saved, "counts")
    change = OperatorChange(drop=frozenset({"seen"}))
    both = rewrite(again, NewSavepoint(str(tmp_path), "x"), renamed={"totals": "sums"}, changes={"totals": change})
    assert names(open_checkpoint(both), "sums") == ["count", "by_day"]
    for uid, kind in (("other", "duplicate-operator"), ("", "bad-change"), (operator_id("other").hex(), "bad-change")):
        with pytest.raises(StatelibError) as caught:
            rewrite(saved, NewSavepoint(str(tmp_path), "third"), renamed={"counts": uid})
        assert caught.value.kind == kind
    assert not (tmp_path / "savepoint-third-1").exists()


def test_one_state_gets_new_entries_and_the_others_keep_theirs(saved: Checkpoint, tmp_path: Path) -> None:
    few = pa.table({"key": KEYS[:5], "value": pa.array([10, 20, 30, 40, 50])})
    new = StateDescriptor("new", StateKind.REDUCING, STRING)
    change = OperatorChange(put={COUNT: few, new: pa.table({"key": KEYS, "value": KEYS})})
    again = open_checkpoint(rewrite(saved, NewSavepoint(str(tmp_path), "second"), changes={"counts": change}))
    assert pairs(again, "counts", "count") == [(f"key {n}", 10 * (n + 1)) for n in range(5)]
    assert names(again, "counts") == ["count", "seen", "by_day", "new"]
    assert len(pairs(again, "counts", "new")) == 300
    for state in ("seen", "by_day"):
        assert pairs(again, "counts", state) == pairs(saved, "counts", state)
    assert data(again, "other") == data(saved, "other")


def test_a_state_may_change_its_type(saved: Checkpoint, tmp_path: Path) -> None:
    text = StateDescriptor("count", StateKind.VALUE, STRING)
    change = OperatorChange(put={text: pa.table({"key": KEYS, "value": KEYS})})
    again = open_checkpoint(rewrite(saved, NewSavepoint(str(tmp_path), "second"), changes={"counts": change}))
    assert again.select("counts").schema().states[0] == text
    assert pairs(again, "counts", "count")[0] == ("key 0", "key 0")


@pytest.mark.parametrize(
    ("drop_operators", "changes", "kind"),
    [
        (["nobody"], {}, "no-operator"),
        ([], {"nobody": OperatorChange()}, "no-operator"),
        ([], {"counts": OperatorChange(frozenset({"nothing"}))}, "unknown-state"),
        (["counts"], {"counts": OperatorChange()}, "bad-change"),
        ([], {"counts": OperatorChange(frozenset({"count"}), {COUNT: tables()["count"]})}, "bad-change"),
        ([], {"counts": OperatorChange(put={COUNT: tables()["seen"]})}, "bad-value-type"),
        ([], {"counts": OperatorChange(put={COUNT: tables()["count"].rename_columns(["k", "v"])})}, "bad-column"),
    ],
)
def test_an_impossible_change_is_refused(
    saved: Checkpoint, tmp_path: Path, drop_operators: list[str], changes: dict[str, OperatorChange], kind: str
) -> None:
    with pytest.raises(StatelibError) as caught:
        rewrite(saved, NewSavepoint(str(tmp_path), "second"), drop_operators=drop_operators, changes=changes)
    assert caught.value.kind == kind
    assert not (tmp_path / "savepoint-second-1" / "_metadata").exists()


def test_master_state_is_not_lost_silently(saved: Checkpoint, tmp_path: Path) -> None:
    held = saved.metadata_bytes
    with_master = Checkpoint(saved.directory, saved.metadata, None, held[:16] + b"\0\0\0\1" + held[20:])
    with pytest.raises(StatelibError) as caught:
        rewrite(with_master, NewSavepoint(str(tmp_path), "second"))
    assert caught.value.kind == "master-state"


def test_side_data_are_not_lost_silently(saved: Checkpoint, tmp_path: Path) -> None:
    handle = ByteStreamStateHandle("model", b"a model")
    manifest = replace(MANIFEST, side_data=(SideDataRecord("model", KeyGroupRange(0, 1), handle),))
    with pytest.raises(StatelibError, match="'model'") as caught:
        rewrite(replace(saved, manifest=manifest), NewSavepoint(str(tmp_path), "second"))
    assert caught.value.kind == "side-data"
    rewrite(replace(saved, manifest=None), NewSavepoint(str(tmp_path), "second"))


def test_a_directory_that_is_taken_is_refused(saved: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(StatelibError) as caught:
        rewrite(saved, NewSavepoint(str(tmp_path), "first"))
    assert caught.value.kind == "location-taken"
    assert (
        caught.value.message == f"{tmp_path}/savepoint-first-1: there is a savepoint already, expected a new directory"
    )
    assert "--target" in caught.value.hint


def test_without_publishing_no_file_is_left(tmp_path: Path) -> None:
    with SavepointWriter(NewSavepoint(str(tmp_path), "left")) as writer:
        writer.add(KeyedOperator("counts", KeyedStateSchema(STRING, 1, (COUNT,))), {"count": tables()["count"]})
    assert list((tmp_path / "savepoint-left-1").iterdir()) == []


def test_a_second_operator_of_the_same_id_or_an_unknown_state_is_refused(tmp_path: Path) -> None:
    with SavepointWriter(NewSavepoint(str(tmp_path), "x")) as writer:
        writer.add(KeyedOperator("counts", SCHEMA, 3), {})
        for states, kind in (({}, "duplicate-operator"), ({"nothing": tables()["count"]}, "unknown-state")):
            with pytest.raises(StatelibError) as caught:
                writer.add(KeyedOperator("counts", SCHEMA, 3), states)
            assert caught.value.kind == kind
