"""The flat table of a state, with one column per single value: names and sources of the columns.

Checks use these names. Key columns come first, then the window, then a map's key, then the values.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import INSTANT, TIME_WINDOW, VOID, ListOf, Row, StateType, Ttl, Tuple

COMPUTED = ("avg", "variance", "stddev")
"""The aggregates whose value is computed from what the state holds."""


@dataclass(frozen=True)
class FrameColumn:
    """One column of the flat table. ``source``: the column of the state's plain table (``key``, ``namespace``,
    ``user_key``, ``value``, ``timestamp``) that its values come from. ``path``: indexes of the nested fields that lead
    to them; in a column of lists, those of the fields of their elements. ``computed``: the aggregate whose value is
    computed from the fields at ``path``, '' if the values are at ``path`` themselves."""

    name: str
    type: StateType
    source: str
    path: tuple[int, ...] = ()
    computed: str = ""

    @property
    def is_key(self) -> bool:
        """Whether the column is part of the row's identity: key, window or user key."""
        return self.source != "value"


def frame_columns(key: tuple[str, ...], key_type: StateType, state: StateDescriptor) -> tuple[FrameColumn, ...]:
    """Return all columns of a state, in order. ``key``: the pipeline's key columns.

    The name of a value's field is ``value.<name>`` if a key column has its name. A window's bounds, a namespace or a
    map's key have ``state.<name>`` if a column of the pipeline's key has their name."""
    columns = [
        replace(column, name=f"state.{column.name}") if column.source != "key" and column.name in key else column
        for column in _key_columns(key, key_type, state)
    ]
    taken = {column.name for column in columns}
    for column in _value_columns(state):
        name = f"value.{column.name}" if column.name in taken else column.name
        columns.append(replace(column, name=name))
    return tuple(columns)


def _key_columns(key: tuple[str, ...], key_type: StateType, state: StateDescriptor) -> Iterator[FrameColumn]:
    if isinstance(key_type, Tuple):
        for i, (name, type_) in enumerate(zip(key, key_type.fields, strict=True)):
            yield FrameColumn(name, type_, "key", (i,))
    else:
        yield FrameColumn(key[0], key_type, "key")
    if state.namespace_type == TIME_WINDOW:
        yield FrameColumn("window_start", INSTANT, "namespace", (0,))
        yield FrameColumn("window_end", INSTANT, "namespace", (1,))
    elif state.namespace_type != VOID:
        yield FrameColumn("namespace", state.namespace_type, "namespace")
    if state.user_key_type is not None:
        yield FrameColumn("user_key", state.user_key_type, "user_key")


def _value_columns(state: StateDescriptor) -> Iterator[FrameColumn]:
    if state.kind is StateKind.TIMERS:
        yield FrameColumn("timestamp", INSTANT, "timestamp")
        return
    type_, inner = (state.value_type.value, (1,)) if isinstance(state.value_type, Ttl) else (state.value_type, ())
    if state.kind is StateKind.LIST:
        yield FrameColumn("value", ListOf(type_), "value", inner)
        return
    computed = {m.field: m.agg for m in state.meanings if m.agg in COMPUTED}
    if isinstance(type_, Row) and "" not in {m.field for m in state.meanings}:
        for i, field in enumerate(type_.fields):
            yield from _flat(field.name, field.type, (*inner, i), computed.get(field.name, ""))
    else:
        yield from _flat("value", type_, inner, computed.get("", ""))


def _flat(name: str, type_: StateType, path: tuple[int, ...], computed: str) -> Iterator[FrameColumn]:
    """Yield the columns of one field. An aggregate that keeps several values has several columns; the column of its
    ``value`` has the name of the aggregate."""
    if not isinstance(type_, Row):
        yield FrameColumn(name, type_, "value", path)
        return
    if computed:
        yield FrameColumn(name, type_.fields[0].type, "value", path, computed)
    for i, field in enumerate(type_.fields):
        own = name if field.name == "value" else f"{name}.{field.name}"
        yield from _flat(own, field.type, (*path, i), "")
