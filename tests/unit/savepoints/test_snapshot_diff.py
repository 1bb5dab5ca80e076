"""Comparing snapshots: schemas that differ, damage, and what is read."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import statelib
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.state import KeyedStateSchema, StateKind
from statelib.model.types import LONG, STRING, Field, Row
from statelib.savepoints.diff.output import ChangeFiles
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.opened import Checkpoint
from statelib.serializers.entries.rows import StateRows
from statelib.testing.counting_reader import counting
from statelib.testing.keyed_samples import MEANS, PER_PLACE, TOTALS, VISITS, owned, put, sample_schema, serialized
from statelib.testing.stored_checkpoints import Way, store_checkpoint
from statelib.wire.ragged import from_list


def means(root: Path, count: int, schema: KeyedStateSchema | None = None, way: Way | None = None) -> Checkpoint:
    """Return a checkpoint with one entry in ``means`` for each of the keys ``key-0`` to ``key-<count - 1>``."""
    schema = schema or KeyedStateSchema(STRING, 128, (MEANS,))

    def fill(backend: object) -> None:
        keys = owned(schema, [f"key-{i}" for i in range(count)], backend.key_group_range)  # type: ignore[attr-defined]
        put(backend, "means", keys, [float(key[4:]) for key in keys])

    return store_checkpoint(root, schema, way or Way(parallelism=2), fill)


def test_a_state_of_only_one_side_is_removed_or_added(tmp_path: Path) -> None:
    few = means(tmp_path / "a", 5)
    more = means(tmp_path / "b", 5, sample_schema())
    states = {state.name: state for state in Diff(few, more).states}
    assert list(states) == ["means", "totals", "visits", "per_place"]
    assert not states["means"].different
    assert states["totals"].different
    assert (states["totals"].before_type, states["totals"].added) == (None, 0)
    only = replace(MEANS, name="means2")
    renamed = store_checkpoint(
        tmp_path / "c", KeyedStateSchema(STRING, 128, (only,)), Way(), lambda b: put(b, "means2", ["x"], [1.5])
    )
    made = Diff(few, renamed)
    counts = {s.name: (s.entries_before, s.entries_after, s.added, s.removed, s.key_groups_read) for s in made.states}
    assert counts["means"][:4] == (5, 0, 0, 5)
    assert counts["means2"] == (0, 1, 1, 0, 1)
    assert made.to_arrow("means2").drop_columns("key_group").to_pylist() == [
        {"key": "x", "change": "added", "before": None, "after": 1.5}
    ]
    assert set(made.to_arrow("means")["change"].to_pylist()) == {"removed"}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (KeyedStateSchema(STRING, 128, (replace(MEANS, kind=StateKind.VALUE),)), "type: reducing<double, void> before"),
        (KeyedStateSchema(STRING, 64, (MEANS,)), "max_parallelism: 128 before, 64 after"),
    ],
)
def test_an_incomparable_state_is_named_and_not_read(tmp_path: Path, schema: KeyedStateSchema, why: str) -> None:
    before, after = counting(means(tmp_path / "a", 5)), counting(means(tmp_path / "b", 5, schema))
    (state,) = Diff(before, after).states
    assert state.incomparable.startswith(why)
    assert state.different
    assert (state.entries_before, state.entries_after, state.added, state.removed, state.changed) == (5, 5, *[None] * 3)
    assert not before.read_bytes + after.read_bytes
    with pytest.raises(InvalidRequestError, match="cannot be compared") as caught:
        Diff(before, after).to_arrow("means")
    assert caught.value.kind == "incomparable-state"


def test_a_changed_key_type_is_named(tmp_path: Path) -> None:
    after = store_checkpoint(tmp_path / "b", KeyedStateSchema(LONG, 128, (MEANS,)), Way(), lambda _: None)
    (state,) = Diff(means(tmp_path / "a", 1), after).states
    assert state.incomparable == "key: string before, long after"


def test_names_of_fields_are_not_compared(tmp_path: Path) -> None:
    renamed = replace(TOTALS, value_type=Row((Field("n", LONG), Field("most_recent", STRING))))
    rows = [
        store_checkpoint(
            tmp_path / state.name / str(i),
            KeyedStateSchema(STRING, 128, (state,)),
            Way(),
            lambda b, names=names, i=i: put(b, "totals", ["x"], [dict(zip(names, (i, "l"), strict=True))]),
        )
        for i, (state, names) in enumerate(((TOTALS, ("count", "last")), (renamed, ("n", "most_recent"))))
    ]
    table = Diff(rows[0], rows[1]).to_arrow("totals")
    assert table.drop_columns(["key_group", "key"]).to_pylist() == [
        {"change": "changed", "before": {"count": 0, "last": "l"}, "after": {"n": 1, "most_recent": "l"}}
    ]


@pytest.mark.parametrize("names", [("second", "first"), ("third", "first")])
def test_fields_in_another_order_are_not_compared(tmp_path: Path, names: tuple[str, str]) -> None:
    """The bytes of an entry would be compared with those of another field."""
    before, after = (
        store_checkpoint(
            tmp_path / each[0],
            KeyedStateSchema(
                STRING, 128, (replace(TOTALS, value_type=Row(tuple(Field(name, LONG) for name in each))),)
            ),
            Way(),
            lambda _: None,
        )
        for each in (("first", "second"), names)
    )
    (state,) = Diff(before, after).states
    assert state.incomparable == (
        "fields in another order: value<row<first: long, second: long>, void> before, "
        f"value<row<{names[0]}: long, first: long>, void> after"
    )


def test_only_key_groups_that_differ_are_read(tmp_path: Path) -> None:
    """The two snapshots differ in one entry: only its key group and the headers are read."""
    before, after = counting(means(tmp_path / "a", 3000)), counting(means(tmp_path / "b", 3001))
    (state,) = Diff(before, after).states
    assert (state.added, state.removed, state.changed, state.key_groups_read) == (1, 0, 0, 1)
    for side in (before, after):
        stored = sum(handle.stream.size_bytes for handle in side.handles())
        assert 0 < sum(side.read_bytes.values()) < stored / 20


def test_rocksdb_files_are_copied_once_whatever_the_windows(tmp_path: Path) -> None:
    way = Way("rocksdb", "full", 2)
    before, after = counting(means(tmp_path / "a", 40, way=way)), counting(means(tmp_path / "b", 80, way=way))
    (state,) = Diff(statelib.open_checkpoint(before.directory), after).states
    read = dict(after.read_bytes)
    assert state.added == 40
    after.read_bytes.clear()
    (again,) = Diff(before, after, window_bytes=1).states
    assert again == state
    assert dict(after.read_bytes) == read


def test_entries_that_do_not_match_the_manifest_are_damage(tmp_path: Path) -> None:
    before, after = means(tmp_path / "a", 50), means(tmp_path / "b", 60)
    assert after.manifest is not None
    (recorded,) = after.manifest.statistics
    changed = replace(recorded, digests=recorded.digests + (recorded.entries > 0).astype("uint64"))
    forged = replace(after, manifest=replace(after.manifest, statistics=(changed,)))
    with pytest.raises(CorruptStateError, match="'means', key group") as caught:
        _ = Diff(before, forged).states
    assert caught.value.kind == "restore-mismatch"
    assert str(tmp_path / "b") in caught.value.message


def test_an_unknown_state_is_named(tmp_path: Path) -> None:
    one = means(tmp_path / "a", 1)
    with pytest.raises(InvalidRequestError, match="known states are means"):
        Diff(one, one).to_arrow("mean")


def test_values_that_python_cannot_hold_are_compared_as_bytes(tmp_path: Path) -> None:
    """NaN equals itself; an empty list state has no entry at all."""
    schema = KeyedStateSchema(STRING, 128, (MEANS, VISITS, PER_PLACE))

    def nan(backend: object) -> None:
        put(backend, "means", ["x"], [float("nan")])
        keys = serialized(schema, "per_place", ["x"], ["a"])
        backend.write(backend.read("per_place", keys), "per_place", pa.array([None], pa.int64()))  # type: ignore[attr-defined]

    first, second = (store_checkpoint(tmp_path / name, schema, Way(manifest=False), nan) for name in "ab")
    assert [(s.different, s.entries_after) for s in Diff(first, second).states] == [(False, 1), (False, 0), (False, 1)]


def test_bytes_after_a_null_of_a_map_are_not_compared(tmp_path: Path) -> None:
    schema = KeyedStateSchema(STRING, 128, (PER_PLACE,))
    keys = serialized(schema, "per_place", ["x", "y", "z"], ["a", "a", "a"])
    one = (b"\x00" + (1).to_bytes(8, "big"),)
    values = {"padded": (b"\x01" + bytes(8), b"\x01", *one), "plain": (b"\x01", b"\x01", *one)}
    padded, plain = (
        store_checkpoint(
            tmp_path / name,
            schema,
            Way("rocksdb", "full"),
            lambda b, name=name: b.load("per_place", StateRows(keys, from_list(values[name]))),
        )
        for name in values
    )
    (state,) = Diff(padded, plain).states
    assert (state.different, state.key_groups_read, state.entries_before) == (False, 1, 3)


def test_a_batch_that_cannot_be_written_leaves_no_file(tmp_path: Path) -> None:
    (tmp_path / "b.parquet").write_text("mine")

    def write() -> None:
        with ChangeFiles(tmp_path) as files:
            files.add("a", pa.table({"key": [1]}))
            files.add("b", pa.table({"key": [1]}))

    with pytest.raises(InvalidRequestError, match="exists already"):
        write()
    assert [path.name for path in tmp_path.iterdir()] == ["b.parquet"]
    assert (tmp_path / "b.parquet").read_text() == "mine"
