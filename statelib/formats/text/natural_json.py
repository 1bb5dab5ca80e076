"""Entries as plain JSON lines, in the form that people and other programs expect; exact types are lost.

``{"operator", "state", "key_group", "key"[, "namespace"][, "user_key"], "value"}``, with ``"timestamp"`` (epoch ms) in
place of the value for a timer. Numbers are JSON numbers; decimals, and numbers that JSON lacks, are text. Times are ISO
8601, bytes are base64. A map is an object if its keys are text or numbers, else a list of pairs. A row is an object by
field names, or a list if its fields have no names.
"""

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from statelib.formats.text.typed_json import Json, operator_members, state_members
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import (
    Field,
    Like,
    ListOf,
    MapOf,
    Nullable,
    Option,
    Row,
    SetOf,
    StateType,
    Ttl,
    Tuple,
    parts_of,
)
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.temporal.dates import date_text
from statelib.wire.json_text import json_text

_NANOS = 1_000_000_000
_MAX_DIGITS = 4000
"""The most digits of a whole number that is a JSON number. Python converts no more than about 4300 at once."""


def entry_lines(operator: str, schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> Iterator[str]:
    """Return one line per entry; the elements of a list state's entry are one list.

    Raise the errors of :func:`statelib.formats.text.typed_json.entry_lines`.
    """
    for head, members in state_members(operator, schema, descriptor, rows):
        line = {"operator": head["op"], "state": head["state"], "key_group": head["kg"]}
        line["key"] = natural(head["key"], schema.key_type)
        if head["ns"] is not None:
            line["namespace"] = natural(head["ns"])
        if descriptor.user_key_type is not None:
            line["user_key"] = natural(head["uk"], descriptor.user_key_type)
        values = [natural(member["value"], descriptor.value_type) for member in members if "value" in member]
        if descriptor.kind is StateKind.TIMERS:
            yield json_text({**line, "domain": head["kind"].removesuffix("Timer"), "timestamp": head["ts"]})
        else:
            yield json_text({**line, "value": values if descriptor.kind is StateKind.LIST else values[0]})


def operator_lines(operator: str, descriptor: OperatorStateDescriptor, parts: Iterable[bytes]) -> Iterator[str]:
    """Return one line per element, or per entry of broadcast state.

    A broadcast map whose entries cannot be separated is one line without a user key.
    """
    for members in operator_members(operator, descriptor, parts):
        line: Json = {"operator": members["op"], "state": members["state"]}
        if descriptor.key_type is not None and "uk" in members:
            line["user_key"] = natural(members["uk"], descriptor.key_type)
        yield json_text({**line, "value": natural(members["value"], descriptor.value_type)})


def natural(typed: Json, kind: StateType | None = None) -> Any:
    """Return typed JSON as plain JSON. ``kind`` is the type of the value, if it names the fields of rows."""
    name = typed["type"]
    while isinstance(kind, Like | Ttl | Nullable | Option):
        (kind,) = parts_of(kind)
    if name == "row":
        return _row(typed["v"], kind)
    if name == "map":
        return _map(typed["v"], kind)
    if name in _FORMS:
        return _FORMS[name](typed)
    value = typed["v"]
    return list(map(natural, value, _kinds_of(kind, len(value)))) if isinstance(value, list) else value


def _kinds_of(kind: StateType | None, count: int) -> tuple[StateType | None, ...]:
    """Return the types of the ``count`` elements of a list, set or tuple; None for each if its type is not given."""
    if isinstance(kind, Tuple):
        return kind.fields
    return (kind.element if isinstance(kind, ListOf | SetOf) else None,) * count


def _number(text: str) -> float | str:
    """Return the number; infinity and NaN, which JSON lacks, stay text."""
    return text if text.lstrip("-") in ("NaN", "Infinity") else float(text)


def _integer(text: str) -> int | str:
    """Return the number; one of more digits than Python converts stays text."""
    return int(text) if len(text) <= _MAX_DIGITS else text


def _map(pairs: list[list[Json]], kind: StateType | None) -> Any:
    key_kind, value_kind = (kind.key, kind.value) if isinstance(kind, MapOf) else (None, None)
    entries = [(natural(key, key_kind), natural(value, value_kind)) for key, value in pairs]
    if all(isinstance(key, str | int | float) for key, _ in entries):
        return {key if isinstance(key, str) else json_text(key): value for key, value in entries}
    return [list(pair) for pair in entries]


def _row(values: list[Json], kind: StateType | None) -> Any:
    if not isinstance(kind, Row) or _unnamed(kind.fields):
        return [natural(value) for value in values]
    return {f.name: natural(value, f.type) for f, value in zip(kind.fields, values, strict=True)}


def _unnamed(fields: tuple[Field, ...]) -> bool:
    return all(field.name == f"f{i}" for i, field in enumerate(fields))


def _decimal(typed: Json) -> str:
    unscaled, scale = typed["unscaled"], typed["scale"]
    sign, digits = ("-", unscaled[1:]) if unscaled.startswith("-") else ("", unscaled)
    if scale <= 0:
        return f"{sign}{digits}" + (f"E{-scale}" if scale else "")
    digits = digits.rjust(scale + 1, "0") if scale < 1000 else digits
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale < 1000 else f"{sign}{digits}E-{scale}"


def _time(nanos: int) -> str:
    seconds, fraction = divmod(nanos, _NANOS)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:09d}".rstrip("0") if fraction else text


def _moment(seconds: int, nanos: int) -> str:
    days, rest = divmod(seconds, 86_400)
    return f"{date_text(days)}T{_time(rest * _NANOS + nanos)}"


def _timestamp(typed: Json) -> str:
    seconds, millis = divmod(typed["v"], 1000)
    return _moment(seconds, typed.get("nanos", millis * 1_000_000))


_FORMS: dict[str, Callable[[Json], Any]] = {
    "null": lambda _: None,
    "void": lambda _: None,
    "globalwindow": lambda _: None,
    "float": lambda typed: _number(typed["v"]),
    "double": lambda typed: _number(typed["v"]),
    "char": lambda typed: chr(typed["v"]),
    "bytes": lambda typed: base64.b64encode(bytes.fromhex(typed["hex"])).decode("ascii"),
    "bigint": lambda typed: _integer(typed["v"]),
    "bigdecimal": _decimal,
    "instant": lambda typed: _moment(typed["sec"], typed["nano"]) + "Z",
    "localtime": lambda typed: _time(typed["nanoOfDay"]),
    "localdatetime": lambda typed: f"{typed['date']}T{_time(typed['nanoOfDay'])}",
    "javadate": lambda typed: _timestamp(typed) + "Z",
    "sqltimestamp": lambda typed: _timestamp(typed) + "Z",
    "timewindow": lambda typed: {"start": typed["start"], "end": typed["end"]},
    "pojo": lambda typed: {name: natural(field) for name, field in typed["v"].items()},
    "either": lambda typed: natural(typed["v"]),
    "oneof": lambda typed: natural(typed["v"]),
    "decoded": lambda typed: typed["v"],
    "raw": lambda typed: {"class": typed["class"], "hex": typed["hex"]},
    "opaque": lambda typed: {name: member for name, member in typed.items() if name != "type"},
}
