"""Stored state under another definition: each resolution, in both backends, and its description."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.backends.keyed import KeyedStateBackend
from statelib.errors import InvalidRequestError
from statelib.model.session_state import window_set_descriptor
from statelib.model.state import FieldMeaning, KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import (
    BYTES,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIME_WINDOW,
    ArrayOf,
    Field,
    ListOf,
    MapOf,
    Row,
    StateType,
    Ttl,
    Tuple,
)
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.schemas.compatibility import Compatibility
from statelib.restore.schemas.evolution import evolve
from statelib.restore.schemas.migration import migration
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import decode_values, encode_values, value_arrow_type
from statelib.testing.keyed_samples import MEANS, PER_PLACE, TOTALS, VISITS, all_entries, got
from statelib.testing.stored_snapshots import KEY_GROUPS, UID, Stored
from statelib.wire.ragged import from_list

AS_IS, AFTER, NO = Compatibility
SUM_AND_COUNT = Row((Field("sum", DOUBLE), Field("count", LONG)))


def _state(type_: StateType, *meanings: FieldMeaning, kind: StateKind = StateKind.VALUE) -> StateDescriptor:
    return StateDescriptor("s", kind, type_, STRING if kind is StateKind.MAP else None, meanings=meanings)


def _row(**fields: StateType) -> Row:
    return Row(tuple(Field(name, type_) for name, type_ in fields.items()))


def _resolve(stored: StateDescriptor, wanted: StateDescriptor) -> tuple[Compatibility, str]:
    evolution = evolve(KeyedStateSchema(STRING, 128, (wanted,)), KeyedStateSchema(STRING, 128, (stored,)))
    (resolution,) = evolution.resolutions
    return resolution.compatibility, "; ".join(resolution.changes)


@pytest.mark.parametrize(
    ("stored", "wanted", "outcome", "text"),
    [
        (_row(a=LONG), _row(a=LONG), AS_IS, ""),
        (_row(a=LONG), _row(a=LONG, b=STRING), AFTER, "field 'b' (string) is new: null"),
        (_row(a=LONG, b=STRING), _row(b=STRING), AFTER, "field 'a' (long) is dropped"),
        (_row(a=LONG, b=STRING), _row(b=STRING, a=LONG), AFTER, "the value: fields in another order"),
        (_row(a=INT), _row(a=LONG), AFTER, "field 'a': int widened to long"),
        (_row(a=LONG), _row(b=LONG), NO, "field 'b': expected long, found no such field but 'a' of the same type"),
        (_row(a=LONG), _row(a=INT), NO, "field 'a': expected int, found long"),
        (_row(a=LONG), _row(a=DOUBLE), NO, "field 'a': expected double, found long"),
        (_row(a=LONG), _row(a=STRING, b=LONG), NO, "field 'a': expected string, found long"),
        (_row(a=_row(x=INT)), _row(a=_row(x=LONG, y=INT)), AFTER, "field 'y' (int) is new: null; field 'x': int"),
        (_row(f0=LONG, f1=INT), _row(a=LONG, b=LONG), AFTER, "field 'b' was called 'f1'; field 'b': int"),
        (_row(f0=LONG, f1=LONG), _row(f0=LONG, b=LONG), AS_IS, "field 'b' was called 'f1'"),
        (_row(f0=LONG, f1=LONG), _row(f1=LONG, f0=LONG), AFTER, "the value: fields in another order"),
        (LONG, LONG, AS_IS, ""),
        (FLOAT, DOUBLE, AFTER, "the value: float widened to double"),
        (ArrayOf(INT), ArrayOf(LONG), AFTER, "the value, elements: int widened to long"),
        (ArrayOf(LONG), ListOf(LONG), NO, "the value: expected list<long>, found array<long>"),
        (MapOf(STRING, INT), MapOf(STRING, LONG), AFTER, "the value, values: int widened to long"),
        (MapOf(INT, INT), MapOf(LONG, INT), NO, "expected map<long, int>, found map<int, int>"),
        (Tuple((INT,)), Tuple((LONG,)), AFTER, "the value, f0: int widened to long"),
        (Tuple((INT,)), Tuple((INT, INT)), NO, "expected tuple<int, int>"),
        (Ttl(_row(a=LONG)), Ttl(_row(a=LONG, b=STRING)), AFTER, "field 'b' (string) is new: null"),
        (Ttl(_row(f0=LONG)), Ttl(_row(a=LONG)), AS_IS, "field 'a' was called 'f0'"),
        (LONG, Ttl(LONG), NO, "the value: expected ttl<long>, found long"),
    ],
)  # fmt: skip
def test_each_change_of_a_type_has_its_resolution(
    stored: StateType, wanted: StateType, outcome: Compatibility, text: str
) -> None:
    assert _resolve(_state(stored), _state(wanted))[0] is outcome
    assert text in _resolve(_state(stored), _state(wanted))[1]


def _histogram(*bounds: float) -> StateDescriptor:
    return _state(_row(h=ArrayOf(LONG)), FieldMeaning("h", "histogram", "delay", (), bounds))


@pytest.mark.parametrize(
    ("stored", "wanted", "outcome", "text"),
    [
        (_histogram(0, 15), _histogram(0, 15), AS_IS, ""),
        (_histogram(0, 15), _histogram(0, 30), NO, "'h': expected histogram with bounds [0.0, 30.0], found histogram"),
        (_state(_row(h=ArrayOf(LONG))), _histogram(0, 30), AS_IS, ""),
        (
            _state(LONG, FieldMeaning("", "min", "a"), kind=StateKind.REDUCING),
            _state(LONG, FieldMeaning("", "max", "a"), kind=StateKind.REDUCING),
            NO,
            "the value: expected max, found min",
        ),
        (_state(_row(x=LONG), FieldMeaning("x", "sum", "a")), _state(_row(x=LONG), FieldMeaning("x")), AS_IS, ""),
        (
            _state(_row(x=LONG), FieldMeaning("x")),
            _state(_row(x=LONG), FieldMeaning("x", "sum", "a")),
            NO,
            "field 'x': expected sum, found a user function",
        ),
        (
            _state(_row(x=LONG), FieldMeaning("x", "count")),
            _state(_row(x=LONG), FieldMeaning("x", "count", where="refunded")),
            AS_IS,
            "field 'x': count of events goes on as count of events where refunded",
        ),
        (
            _state(_row(x=BYTES), FieldMeaning("x", "theta", "user", hashes="whole numbers")),
            _state(_row(x=BYTES), FieldMeaning("x", "theta", "user", hashes="texts or bytes")),
            NO,
            "field 'x': expected theta of texts or bytes, found the hashes of whole numbers",
        ),
        (
            _state(_row(x=BYTES), FieldMeaning("x", "theta", "user")),
            _state(_row(x=BYTES), FieldMeaning("x", "theta", "user", hashes="texts or bytes")),
            AS_IS,
            "",
        ),
        (
            _state(_row(x=LONG), FieldMeaning("x", "sum", "miles")),
            _state(_row(x=LONG), FieldMeaning("x", "sum", "distance")),
            AS_IS,
            "field 'x': sum of miles goes on as sum of distance",
        ),
        (
            _state(_row(x=LONG), FieldMeaning("x", "sum", "a")),
            _state(_row(y=LONG), FieldMeaning("y", "sum", "a", renamed_from=("z", "x"))),
            AS_IS,
            "field 'y' was called 'x'",
        ),
        (
            _state(_row(x=LONG, y=LONG), FieldMeaning("x", "sum", "a"), FieldMeaning("y", "sum", "b")),
            _state(_row(x=LONG), FieldMeaning("x", "sum", "b", renamed_from=("y",))),
            NO,
            "field 'x': stored are both 'x' and 'y', and 'renamed_from' names 'y': to continue 'y', leave 'x' out one",
        ),
        (
            _state(_row(y=LONG), FieldMeaning("y", "sum", "b")),
            _state(_row(x=LONG), FieldMeaning("x", "sum", "b", renamed_from=("y",))),
            AS_IS,
            "field 'x' was called 'y'",
        ),
        (
            _state(_row(x=LONG), FieldMeaning("x", "sum", "b")),
            _state(_row(x=LONG, z=STRING), FieldMeaning("x", "sum", "b", renamed_from=("y",)), FieldMeaning("z")),
            AFTER,
            "field 'z' (string) is new: null",
        ),
        (
            _state(_row(f0=LONG, f1=LONG), FieldMeaning("f0", "sum", "a"), FieldMeaning("f1", "sum", "a")),
            _state(_row(f0=LONG, x=LONG), FieldMeaning("f0", "sum", "a"), FieldMeaning("x", "sum", "b")),
            NO,
            "field 'x': expected long, found no such field but 'f1' of the same type: say 'renamed_from: f1', or leave",
        ),
        (
            _state(_row(value=_row(a=INT, b=STRING), by_t=LONG), FieldMeaning("", "last", together=True)),
            _state(_row(value=_row(a=INT, c=STRING), by_t=LONG), FieldMeaning("", "last", together=True)),
            NO,
            "found no such field but 'b' of the same type: call it 'b' as before, or leave 'b' out one run earlier",
        ),
        (
            _state(_row(x=SUM_AND_COUNT), FieldMeaning("x", "avg", "a")),
            _state(_row(x=_row(count=LONG, sum=DOUBLE)), FieldMeaning("x", "avg", "a")),
            NO,
            "field 'x': expected row<count: long, sum: double>",
        ),
        (
            _state(SUM_AND_COUNT, FieldMeaning("", "avg", "a"), kind=StateKind.AGGREGATING),
            _state(_row(value=LONG, by_t=LONG), FieldMeaning("", "last", "a", ("t",)), kind=StateKind.AGGREGATING),
            NO,
            "expected row<value: long, by_t: long>, found row<sum: double, count: long>",
        ),
        (
            _state(_row(x=ListOf(_row(value=_row(a=INT), by_t=LONG))), FieldMeaning("x", "top", together=True)),
            _state(_row(x=ListOf(_row(value=_row(a=INT, b=INT), by_t=LONG))), FieldMeaning("x", "top", together=True)),
            AFTER,
            "field 'b' (int) is new: null",
        ),
        (
            _state(_row(x=ListOf(_row(value=INT, by_t=LONG))), FieldMeaning("x", "top")),
            _state(_row(x=ListOf(_row(value=INT, by_u=LONG))), FieldMeaning("x", "top")),
            NO,
            "field 'x', elements: expected row<value: int, by_u: long>",
        ),
        (_state(LONG, kind=StateKind.LIST), _state(LONG), NO, "expected value<long, void>, found list<long, void>"),
        (_state(INT, kind=StateKind.MAP), _state(LONG, kind=StateKind.MAP), AFTER, "int widened to long"),
        (_state(INT, kind=StateKind.LIST), _state(LONG, kind=StateKind.LIST), AFTER, "int widened to long"),
        (
            _state(INT, kind=StateKind.MAP),
            replace(_state(INT, kind=StateKind.MAP), user_key_type=LONG),
            NO,
            "expected map<long, int, void>, found map<string, int, void>",
        ),
    ],
)
def test_each_change_of_a_state_has_its_resolution(
    stored: StateDescriptor, wanted: StateDescriptor, outcome: Compatibility, text: str
) -> None:
    assert _resolve(stored, wanted)[0] is outcome
    assert text in _resolve(stored, wanted)[1]


def _schema(*states: StateDescriptor) -> KeyedStateSchema:
    return KeyedStateSchema(STRING, 128, states)


@pytest.fixture(params=["heap", "rocksdb"])
def restore(request: pytest.FixtureRequest, full: Stored, tmp_path: Path) -> Callable[..., KeyedStateBackend]:
    """Restore RocksDB's files into either backend."""

    def restore(schema: KeyedStateSchema, *, allow: bool = False) -> KeyedStateBackend:
        source = replace(full.source, allow_non_restored=allow)
        if request.param == "heap":
            return restore_heap(schema, KEY_GROUPS, [source], str(tmp_path / "scratch"))
        return restore_rocksdb(schema, KEY_GROUPS, [source], str(tmp_path / "restored"), UID)

    return restore


def test_a_new_state_starts_empty(restore: Callable[..., KeyedStateBackend], full: Stored) -> None:
    backend = restore(_schema(TOTALS, replace(MEANS, name="new"), MEANS, VISITS, PER_PLACE))
    assert all_entries(backend) == {**full.entries, "new": {}}
    assert [s.total_entries for s in backend.statistics()] == [60, 0, 60, 60, 120]
    assert got(backend, "new", ["key-1"]) == [None]
    backend.close()


def test_a_renamed_state_keeps_its_entries(restore: Callable[..., KeyedStateBackend], full: Stored) -> None:
    backend = restore(_schema(TOTALS, replace(MEANS, name="averages", renamed_from=("x", "means")), VISITS, PER_PLACE))
    stored = all_entries(backend)
    assert stored["averages"] == full.entries["means"]
    assert backend.statistics()[1].same_content(full.source.statistics[1])
    backend.close()


def test_an_existing_state_is_never_used_under_an_earlier_name(full: Stored) -> None:
    wanted = _schema(replace(MEANS, name="other", renamed_from=("means",)), MEANS, TOTALS, VISITS, PER_PLACE)
    resolutions = {r.state: r.stored for r in evolve(wanted, full.source.schema).resolutions}
    assert (resolutions["other"], resolutions["means"]) == (None, "means")


@pytest.mark.parametrize("allow", [False, True])
def test_a_state_does_not_continue_one_of_its_name_if_it_is_renamed_from_another(full: Stored, allow: bool) -> None:
    """Otherwise the entries of the other state would be dropped, and those of this state would mean something else."""
    wanted = _schema(replace(MEANS, renamed_from=("totals",)), VISITS, PER_PLACE)
    with pytest.raises(InvalidRequestError, match="state 'means': stored are both 'means' and 'totals'") as caught:
        evolve(wanted, full.source.schema).check(allow_non_restored=allow)
    assert caught.value.kind == "state-schema-changed"


def test_a_state_is_left_out_only_if_the_pipeline_allows_it(
    restore: Callable[..., KeyedStateBackend], full: Stored, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = _schema(TOTALS, VISITS)
    with pytest.raises(InvalidRequestError, match=r"'means' \(reducing<double, void>\), 'per_place'") as caught:
        restore(schema)
    assert caught.value.kind == "non-restored-state"
    assert [p.name for p in tmp_path.iterdir()] == ["storage"]
    with caplog.at_level(logging.WARNING):
        backend = restore(schema, allow=True)
    assert all_entries(backend) == {name: full.entries[name] for name in ("totals", "visits")}
    backend.close()
    messages = sorted(record.getMessage() for record in caplog.records)
    assert "state 'means' is not restored: key groups 0-127, 60 entries" in messages[0]
    assert "state 'per_place' is not restored: key groups 0-127, 120 entries" in messages[1]
    assert not any(" 0 bytes" in text for text in messages)


@pytest.mark.parametrize(
    ("stored", "wanted", "outcome", "text"),
    [
        ("tumbling 1h", "tumbling 1h", AS_IS, ""),
        ("tumbling 1h", "tumbling 1d", NO, "windows: expected tumbling 1d, found tumbling 1h"),
        ("tumbling 1h", "sliding 1h every 1m", NO, "windows: expected sliding 1h every 1m, found tumbling 1h"),
        ("tumbling 1h", "session 1h", NO, "windows: expected session 1h, found tumbling 1h"),
        ("session 1h", "session 2h", AS_IS, "windows: session 1h goes on as session 2h"),
        ("", "tumbling 1h", AS_IS, ""),
    ],
)
def test_windows_of_another_form_are_refused(stored: str, wanted: str, outcome: Compatibility, text: str) -> None:
    """Otherwise a day's window would begin without the events of its first hours, beside the windows of these hours."""
    contents = replace(_state(LONG, kind=StateKind.REDUCING), namespace_type=TIME_WINDOW)
    assert _resolve(replace(contents, windows=stored), replace(contents, windows=wanted)) == (outcome, text)


@pytest.mark.parametrize(
    ("user_key", "time", "text"),
    [
        ("tail", "at", ""),
        ("plane", "at", "the user key: tail goes on as plane"),
        ("tail", "sent", "the time of windows: at goes on as sent"),
        ("plane", "sent", "the user key: tail goes on as plane; the time of windows: at goes on as sent"),
        ("", "", ""),
    ],
)
def test_other_columns_of_the_user_key_and_of_time_are_named(user_key: str, time: str, text: str) -> None:
    stored = replace(_state(LONG), user_key="tail", time="at")
    other = replace(stored, user_key=user_key, time=time)
    assert _resolve(stored, other) == (AS_IS, text)
    assert _resolve(replace(stored, user_key="", time=""), other) == (AS_IS, "")


def test_windows_of_a_fixed_size_do_not_become_sessions() -> None:
    """Without the state that names the sessions, their contents would be in no session, and never be emitted."""
    contents = replace(_state(LONG, kind=StateKind.REDUCING), namespace_type=TIME_WINDOW)
    fixed = KeyedStateSchema(STRING, 128, (contents,))
    declared = replace(contents, windows="session 1h")
    sessions = KeyedStateSchema(STRING, 128, (declared, window_set_descriptor("s")))
    with pytest.raises(InvalidRequestError, match="expected session windows, found windows of a fixed size") as refused:
        evolve(sessions, fixed).check(allow_non_restored=True)
    assert refused.value.kind == "state-schema-changed"
    evolve(sessions, sessions).check(allow_non_restored=False)
    evolve(sessions, KeyedStateSchema(STRING, 128, ())).check(allow_non_restored=False)
    with pytest.raises(InvalidRequestError, match="merging-window-set"):
        evolve(fixed, sessions).check(allow_non_restored=False)


def test_fields_of_a_row_are_added_removed_and_moved(restore: Callable[..., KeyedStateBackend]) -> None:
    moved = replace(
        TOTALS,
        value_type=_row(note=ListOf(LONG), latest=STRING),
        meanings=(FieldMeaning("note"), FieldMeaning("latest", renamed_from=("last",))),
    )
    before, after = restore(_schema(TOTALS, MEANS, VISITS, PER_PLACE)), None
    keys = [f"key-{i}" for i in range(60)]
    old = got(before, "totals", keys)
    before.close()
    after = restore(_schema(moved, MEANS, VISITS, PER_PLACE))
    assert got(after, "totals", keys) == [{"note": None, "latest": value["last"]} for value in old]
    assert after.statistics()[0].total_entries == 60
    after.close()


@pytest.mark.parametrize("kind", [StateKind.VALUE, StateKind.MAP])
def test_values_that_expire_keep_their_times_when_their_fields_change(kind: StateKind) -> None:
    old = {"last_access_ms": 5, "value": {"a": 7, "b": "x"}}
    new = {"last_access_ms": 5, "value": {"n": None, "c": "x", "a": 7}}
    stored = _state(Ttl(_row(a=INT, b=STRING)), kind=kind)
    renamed = FieldMeaning("c", renamed_from=("b",))
    wanted = _state(Ttl(_row(n=DOUBLE, c=STRING, a=LONG)), FieldMeaning("n"), renamed, FieldMeaning("a"), kind=kind)
    rows = StateRows(from_list([b"k"]), encode_values(stored, pa.array([old], value_arrow_type(stored))))
    migrated = migration(stored, wanted)(rows)
    assert decode_values(wanted, migrated.values).to_pylist() == [new]


def test_elements_that_expire_keep_their_times_when_they_are_widened() -> None:
    stored, wanted = (_state(Ttl(type_), kind=StateKind.LIST) for type_ in (INT, LONG))
    elements = [{"last_access_ms": 5, "value": 1}, {"last_access_ms": 6, "value": 2}]
    rows = StateRows(from_list([b"k"]), encode_values(stored, pa.array([elements], value_arrow_type(stored))))
    assert decode_values(wanted, migration(stored, wanted)(rows).values).to_pylist() == [elements]


def test_an_incompatible_restore_leaves_no_file(restore: Callable[..., KeyedStateBackend], tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="state 'means': the pipeline expects reducing<string") as caught:
        restore(_schema(TOTALS, replace(MEANS, value_type=STRING), VISITS, PER_PLACE))
    assert "the value: expected string, found double" in caught.value.message
    assert [p.name for p in tmp_path.iterdir()] == ["storage"]
