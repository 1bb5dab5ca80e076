"""The mapping of a table to the key and the states of a pipeline, as SQL expressions on the table's columns.

Each part of the state is a slot with a path: a column of the key (``customer``), a state (``recent``), a field of a
state (``total.amount``), or a part of a field, where an aggregate stores more than one number (``total.mean.sum``). A
name may have dots, so a path is only what users write; ``Slot.steps`` tells slots apart."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from statelib.definition.columns import event_schema
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import VOID, Ttl
from statelib.serializers.entries.values import value_arrow_type
from statelib.serializers.registry import codec_of
from statelib.spark.dataframe.arrow_types import spark_type
from statelib.spark.events.source_columns import checked_expression
from statelib.spark.events.source_types import in_sql, is_read_as, quoted

STATE = "__statelib_state_"
"""The start of the names of the columns that hold the values of the states."""


@dataclass(frozen=True)
class Slot:
    """A part of the state that a table fills. ``steps``: the names of the state, the field and the part, as far as it
    has them; '' and the name for a column of the key. ``name``: the column that fills it by default, '' if none
    does."""

    steps: tuple[str, ...]
    arrow: pa.DataType
    name: str = ""
    parts: tuple["Slot", ...] = ()

    @property
    def path(self) -> str:
        """The name of the slot in ``--map`` and in errors."""
        return ".".join(filter(None, self.steps))

    @property
    def short(self) -> str:
        """The path without the state, '' for a state."""
        return ".".join(self.steps[1:])

    @property
    def spark(self) -> DataType:
        """Spark's type of the values."""
        return spark_type(self.arrow)


@dataclass(frozen=True)
class MappedTable:
    """A table whose columns are mapped to a pipeline. ``expressions``: the path and the SQL expression of each slot
    that is filled. ``states``: the states that are filled, in the order of the pipeline file. ``frame``: the columns of
    the key, and one column per state, in which null stands for no entry. ``columns``: their Arrow types."""

    expressions: tuple[tuple[str, str], ...]
    states: tuple[str, ...]
    frame: DataFrame = field(repr=False)
    columns: pa.Schema = field(repr=False)


def map_table(
    table: DataFrame, pipeline: Pipeline, mapping: Mapping[str, str], without: Sequence[str] = ()
) -> MappedTable:
    """Map the columns of a table. ``mapping``: an SQL expression per slot; by default, a slot is filled by the column
    of its name. ``without``: the states that begin empty.

    Raises InvalidRequestError: ``unknown-state``, ``no-mapping`` for slots that nothing fills, ``bad-mapping`` for an
    unknown slot, ``bad-expression``, ``column-type``; UnsupportedError (``no-seed``) for a state that a table cannot
    fill."""
    key, states = _key_slots(pipeline), _state_slots(pipeline, without)
    mapper = _Mapper(table, pipeline, _resolved(mapping, [*key, *states]))
    expressions = [f"{mapper.expression(slot)} AS {quoted(slot.path)}" for slot in key]
    expressions += [f"{mapper.expression(slot)} AS {quoted(STATE + slot.path)}" for slot in states]
    if mapper.missing:
        raise _no_mapping(table, pipeline, mapper.missing)
    schema = event_schema(pipeline)
    columns = [schema.field(slot.path) for slot in key] + [pa.field(f"{STATE}{s.path}", s.arrow) for s in states]
    names = tuple(slot.path for slot in states)
    return MappedTable(tuple(mapper.used), names, table.selectExpr(*expressions), pa.schema(columns))


def _key_slots(pipeline: Pipeline) -> list[Slot]:
    """Return the slot of each column of the key."""
    schema = event_schema(pipeline)
    return [Slot(("", name), schema.field(name).type, name) for name in pipeline.key]


def _state_slots(pipeline: Pipeline, without: Sequence[str]) -> list[Slot]:
    """Return the slot of each state that is filled. Raises as :func:`map_table`."""
    schema = pipeline.schema()
    for name in without:
        if name not in pipeline.states:
            raise InvalidRequestError(
                f"{pipeline.name}: there is no state {name!r} to leave empty, there are {', '.join(pipeline.states)}",
                kind="unknown-state",
            )
    chosen = [schema.state(name) for name in pipeline.states if name not in without]
    if not chosen:
        raise InvalidRequestError(f"{pipeline.name}: no state is left to be filled", kind="no-mapping")
    names = [name for descriptor in chosen for name in _field_names(descriptor)]
    defaults = {name for name in names if names.count(name) == 1} - set(pipeline.key)
    return [_state_slot(pipeline, descriptor, defaults) for descriptor in chosen]


def _field_names(descriptor: StateDescriptor) -> list[str]:
    arrow = _plain_type(descriptor)
    return [part.name for part in arrow] if pa.types.is_struct(arrow) else [descriptor.name]


def _state_slot(pipeline: Pipeline, descriptor: StateDescriptor, defaults: set[str]) -> Slot:
    """Return the slot of a state. ``defaults``: the names that only one field of all states has."""
    name, state = descriptor.name, pipeline.states[descriptor.name]
    if descriptor.namespace_type != VOID or state.on_timer is not None:
        what = "windows" if descriptor.namespace_type != VOID else "timers, which its function sets"
        raise UnsupportedError(
            f"{pipeline.name}: state {name!r} has {what}: a table cannot fill it",
            kind="no-seed",
            hint=f"begin with it empty: --without {name}",
        )
    arrow = _plain_type(descriptor)
    if not pa.types.is_struct(arrow):
        return Slot((name,), arrow, name if name in defaults else "")
    parts = tuple(
        _parts_of(Slot((name, part.name), part.type, part.name if part.name in defaults else "")) for part in arrow
    )
    return Slot((name,), arrow, "", parts)


def _parts_of(slot: Slot) -> Slot:
    """Return the slot with the parts of a value that is stored as several."""
    if not pa.types.is_struct(slot.arrow):
        return slot
    return replace(slot, parts=tuple(_parts_of(Slot((*slot.steps, part.name), part.type)) for part in slot.arrow))


def _plain_type(descriptor: StateDescriptor) -> pa.DataType:
    """Return the Arrow type of the value that a table has per key: that of a state without the times of a time to live,
    and a map from user keys for map state."""
    type_ = descriptor.value_type
    arrow = value_arrow_type(replace(descriptor, value_type=type_.value) if isinstance(type_, Ttl) else descriptor)
    if descriptor.kind is not StateKind.MAP or descriptor.user_key_type is None:
        return arrow
    return pa.map_(codec_of(descriptor.user_key_type).arrow_type, arrow)


def _all_slots(slots: Sequence[Slot]) -> Iterator[Slot]:
    for slot in slots:
        yield slot
        yield from _all_slots(slot.parts)


def _resolved(mapping: Mapping[str, str], slots: Sequence[Slot]) -> dict[tuple[str, ...], str]:
    """Return the mapping by the steps of slots. A path may leave out the state if only one state has such a field.

    Raises InvalidRequestError (``bad-mapping``)."""
    every = list(_all_slots(slots))
    resolved: dict[tuple[str, ...], str] = {}
    for name, text in mapping.items():
        candidates = [slot for slot in every if slot.path == name] or [slot for slot in every if slot.short == name]
        if len(candidates) != 1:
            raise _not_one(f"--map {name}={text}", name, candidates, slots)
        if candidates[0].steps in resolved:
            raise InvalidRequestError(f"--map {name}={text}: {candidates[0].path} is mapped twice", kind="bad-mapping")
        resolved[candidates[0].steps] = text
    return resolved


def _not_one(what: str, name: str, candidates: Sequence[Slot], slots: Sequence[Slot]) -> InvalidRequestError:
    """Return the error for a name of no slot, or of several ones."""
    paths = sorted({slot.path for slot in candidates})
    if len(candidates) > len(paths):
        return InvalidRequestError(
            f"{what}: {len(candidates)} parts of the key and the states have this name",
            kind="bad-mapping",
            hint="give one of them a name without dots in the pipeline file, or one that no other has",
        )
    if candidates:
        several = f"it can be {' or '.join(paths)}"
        return InvalidRequestError(f"{what}: {several}", kind="bad-mapping", hint=f"expected {_listed(slots)}")
    names = {text for slot in _all_slots(slots) for text in (slot.path, slot.short) if text}
    close = get_close_matches(name, sorted(names), 1)
    return InvalidRequestError(
        f"{what}: there is no such key or field",
        kind="bad-mapping",
        hint=f"did you mean {close[0]!r}?" if close else f"expected {_listed(slots)}",
    )


def _listed(slots: Sequence[Slot]) -> str:
    return ", ".join(slot.path for slot in _all_slots(slots) if not slot.parts)


@dataclass
class _Mapper:
    """The making of the SQL expressions of slots. ``mapping``: those that are given, by the steps of slots. ``used``:
    the paths and the expressions that were made so far; ``missing``: the slots without one."""

    table: DataFrame
    pipeline: Pipeline
    mapping: Mapping[tuple[str, ...], str]
    used: list[tuple[str, str]] = field(default_factory=list)
    missing: list[Slot] = field(default_factory=list)

    def expression(self, slot: Slot) -> str:
        """Return the expression of a slot in its type. It is null if nothing fills it."""
        text = self.mapping.get(slot.steps)
        by_parts = any(part.steps in self.mapping for part in _all_slots(slot.parts))
        if text is None and slot.name in self.table.columns and not by_parts:
            text = slot.name
        written = text
        if text in self.table.columns:
            text = quoted(text)
        actual = None if text is None else self._type(slot, text)
        if slot.parts and (text is None or isinstance(actual, StructType)):
            return self._struct(slot, text, actual)
        if written is None or actual is None:
            self.missing.append(slot)
            return "NULL"
        self.used.append((slot.path, written))
        if slot.parts or not fits(actual, slot.spark):
            raise self._wrong_type(slot, written, actual)
        return f"CAST(({text}) AS {in_sql(slot.spark)})"

    def _struct(self, slot: Slot, text: str | None, actual: DataType | None) -> str:
        """Return the expression of a slot with parts; it is null where all of them are. ``text``: the column with these
        parts, if there is one."""
        if text is not None and isinstance(actual, StructType):
            inside = [part for part in slot.parts if part.steps[-1] in actual.names]
            given = {part.steps: f"({text}).{quoted(part.steps[-1])}" for part in inside}
            self.mapping = given | dict(self.mapping)
        parts = {part.steps[-1]: self.expression(part) for part in slot.parts}
        fields = ", ".join(f"{expression} AS {quoted(name)}" for name, expression in parts.items())
        present = " OR ".join(f"({expression}) IS NOT NULL" for expression in parts.values())
        return f"IF({present}, struct({fields}), NULL)"

    def _type(self, slot: Slot, text: str) -> DataType:
        field_name = f"--map {slot.path}"
        frame = checked_expression(self.pipeline, field_name, text, self.table, f"({text}) AS value")
        return frame.schema["value"].dataType

    def _wrong_type(self, slot: Slot, text: str, actual: DataType) -> InvalidRequestError:
        wanted = (
            " and ".join(part.path for part in slot.parts) + " instead, because the state has both"
            if slot.parts
            else f"an expression of type {slot.spark.simpleString()}, such as --map {slot.path}='CAST(...)'"
        )
        return InvalidRequestError(
            f"pipeline {self.pipeline.name}: {text} is {actual.simpleString()}, {slot.path} is "
            f"{slot.spark.simpleString()}",
            kind="column-type",
            hint=f"map {wanted}",
        )


def fits(actual: DataType, wanted: DataType) -> bool:
    """Return whether each value is read as an equal value of the wanted type, or as the nearest double, or ends the job
    with an error if it is too large."""
    if isinstance(actual, ArrayType) and isinstance(wanted, ArrayType):
        return fits(actual.elementType, wanted.elementType)
    if isinstance(actual, MapType) and isinstance(wanted, MapType):
        return fits(actual.keyType, wanted.keyType) and fits(actual.valueType, wanted.valueType)
    if isinstance(actual, StructType) and isinstance(wanted, StructType):
        pairs = zip(actual.fields, wanted.fields, strict=False)
        return actual.names == wanted.names and all(fits(a.dataType, w.dataType) for a, w in pairs)
    names = actual.simpleString(), wanted.simpleString()
    return is_read_as(*names) or (_is_number(names[0]) and names[1] == "double") or _is_narrowed(*names)


_WHOLE = ("tinyint", "smallint", "int", "bigint")


def _is_number(name: str) -> bool:
    return name in (*_WHOLE, "float") or name.startswith("decimal(")


def _is_narrowed(actual: str, wanted: str) -> bool:
    """Return whether whole numbers become those of fewer bits. Spark raises an error for one that does not fit."""
    whole = actual in _WHOLE or (actual.startswith("decimal(") and actual.endswith(",0)"))
    return whole and wanted in _WHOLE


def _no_mapping(table: DataFrame, pipeline: Pipeline, missing: Sequence[Slot]) -> InvalidRequestError:
    state = next((slot.steps[0] for slot in missing if slot.steps[0]), "")
    empty = f"; or begin with a state empty: --without {state}" if state else ""
    return InvalidRequestError(
        f"pipeline {pipeline.name}: nothing fills {', '.join(slot.path for slot in missing)}; the table has "
        f"{', '.join(f'{f.name} {f.dataType.simpleString()}' for f in table.schema.fields)}",
        kind="no-mapping",
        hint=f"name the column, or an SQL expression: --map {missing[0].path}=COLUMN{empty}",
    )
