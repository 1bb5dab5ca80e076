"""Whether stored values can become the values that are wanted now, and what has to be done for that.

Flink's TypeSerializerSchemaCompatibility, for the changes that batch pipelines make: fields of a Row
added, removed, moved and renamed, numbers widened. An aggregate's accumulator is closed: only its
numbers may widen.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from statelib.model.state import FieldMeaning, StateDescriptor, StateKind
from statelib.model.types import ArrayOf, Field, ListOf, MapOf, Row, Scalar, StateType, Tuple
from statelib.restore.schemas.matching import describe, without_field_names

WIDER = {
    "byte": ("short", "int", "long"),
    "short": ("int", "long"),
    "int": ("long",),
    "float": ("double",),
}
"""Numbers that lose nothing by it."""

EarlierNames = Mapping[str, Sequence[str]]
"""Field -> the names that it had before."""


class Compatibility(StrEnum):
    """What a change of the schema means for stored state; the words are Flink's."""

    AS_IS = "COMPATIBLE_AS_IS"
    AFTER_MIGRATION = "COMPATIBLE_AFTER_MIGRATION"
    INCOMPATIBLE = "INCOMPATIBLE"


ORDER = tuple(Compatibility)


@dataclass(frozen=True)
class Difference:
    """One thing that changed: ``text`` says what, naming the field."""

    compatibility: Compatibility
    text: str


def compare_states(found: StateDescriptor, wanted: StateDescriptor) -> tuple[Difference, ...]:
    """All that differs between a stored state and the one it is to become, its name aside."""
    if _outside(found) != _outside(wanted):
        return (Difference(Compatibility.INCOMPATIBLE, f"expected {describe(wanted)}, found {describe(found)}"),)
    return (*_types(found.value_type, wanted.value_type, "the value", evolving(wanted)), *_meanings(found, wanted))


def _outside(descriptor: StateDescriptor) -> tuple[object, ...]:
    """What never migrates: the kind, and all types that are part of a key."""
    keys = (descriptor.user_key_type, descriptor.namespace_type)
    return (descriptor.kind, *(t if t is None else without_field_names(t) for t in keys))


@dataclass(frozen=True)
class Evolving:
    """Which Rows of a value may change their fields. ``closed``: not this one, nor those within; ``fields``: the fields
    of this Row to which something else applies; ``earlier``: of its fields."""

    closed: bool = False
    fields: "Mapping[str, Evolving]" = dataclasses.field(default_factory=dict)
    earlier: EarlierNames = dataclasses.field(default_factory=dict)

    def within(self, name: str) -> "Evolving":
        return self.fields.get(name) or Evolving(self.closed)


def evolving(wanted: StateDescriptor) -> Evolving:
    """What may change in the values of a state."""
    aggregates = {meaning.field: _accumulator(meaning) for meaning in wanted.meanings if meaning.agg}
    if "" in aggregates:
        return aggregates[""]
    earlier = {meaning.field: meaning.renamed_from for meaning in wanted.meanings}
    return Evolving(wanted.kind is StateKind.LIST, aggregates, earlier)


def _accumulator(meaning: FieldMeaning) -> Evolving:
    """Nothing in it may change, except that the columns of one event may come and go."""
    return Evolving(closed=True, fields={"value": Evolving()} if meaning.together else {})


def _types(found: StateType, wanted: StateType, where: str, rule: Evolving) -> Iterator[Difference]:
    if found == wanted:
        return
    match found, wanted:
        case Scalar(), Scalar() if wanted.name in WIDER.get(found.name, ()):
            yield Difference(Compatibility.AFTER_MIGRATION, f"{where}: {found} widened to {wanted}")
        case (ArrayOf(old), ArrayOf(new)) | (ListOf(old), ListOf(new)):
            yield from _types(old, new, f"{where}, elements", rule.within(""))
        case MapOf(), MapOf() if without_field_names(found.key) == without_field_names(wanted.key):
            yield from _types(found.value, wanted.value, f"{where}, values", rule.within(""))
        case Tuple(), Tuple() if len(found.fields) == len(wanted.fields):
            for i, (old, new) in enumerate(zip(found.fields, wanted.fields, strict=True)):
                yield from _types(old, new, f"{where}, f{i}", rule.within(""))
        case Row(), Row():
            yield from _rows(found, wanted, where, rule)
        case _:
            yield Difference(Compatibility.INCOMPATIBLE, f"{where}: expected {wanted}, found {found}")


def _rows(found: Row, wanted: Row, where: str, rule: Evolving) -> Iterator[Difference]:
    origin = field_origins(found, wanted, rule.earlier)
    names = [f.name for f in found.fields]
    if rule.closed and (origin != tuple(range(len(names))) or len(names) != len(wanted.fields)):
        yield Difference(Compatibility.INCOMPATIBLE, f"{where}: expected {wanted}, found {found}")
        return
    yield from _moves(found, wanted, where, origin)
    for field, at in zip(wanted.fields, origin, strict=True):
        if at is not None:
            yield from _types(found.fields[at].type, field.type, f"field {field.name!r}", rule.within(field.name))


def _moves(found: Row, wanted: Row, where: str, origin: tuple[int | None, ...]) -> Iterator[Difference]:
    """Fields that come, go, change their names or their places."""
    gone = [field for i, field in enumerate(found.fields) if i not in origin]
    for field, at in zip(wanted.fields, origin, strict=True):
        if at is None:
            yield _added(field, gone)
        elif found.fields[at].name != field.name:
            yield Difference(Compatibility.AS_IS, f"field {field.name!r} was called {found.fields[at].name!r}")
    for field in gone:
        yield Difference(Compatibility.AFTER_MIGRATION, f"field {field.name!r} ({field.type}) is dropped")
    kept = [at for at in origin if at is not None]
    if kept != sorted(kept):
        yield Difference(Compatibility.AFTER_MIGRATION, f"{where}: fields in another order")


def _added(field: Field, gone: Sequence[Field]) -> Difference:
    """A new field beside a vanished one of the same type is a renamed one more often than not: it is not guessed."""
    for other in gone:
        if without_field_names(other.type) == without_field_names(field.type):
            return Difference(
                Compatibility.INCOMPATIBLE,
                f"field {field.name!r}: expected {field.type}, found no such field but {other.name!r} of the same type:"
                f" say 'renamed_from: {other.name}', or leave {other.name!r} out one run earlier",
            )
    return Difference(Compatibility.AFTER_MIGRATION, f"field {field.name!r} ({field.type}) is new: null")


def field_origins(found: Row, wanted: Row, earlier: EarlierNames) -> tuple[int | None, ...]:
    """For each wanted field its place in the stored Row, None where it is new.

    By name, then by earlier names; by place where the stored Row never had names (Flink writes none)."""
    names = [field.name for field in found.fields]
    if names == [f"f{i}" for i in range(len(names))] and len(names) == len(wanted.fields):
        return tuple(range(len(names)))
    present = {field.name for field in wanted.fields}
    origin: list[int | None] = []
    for field in wanted.fields:
        former = [name for name in earlier.get(field.name, ()) if name not in present]
        origin.append(next((names.index(name) for name in (field.name, *former) if name in names), None))
    return tuple(origin)


def _meanings(found: StateDescriptor, wanted: StateDescriptor) -> Iterator[Difference]:
    """Accumulators of the same type that mean something else; nothing where the snapshot does not tell."""
    stored = {meaning.field: meaning for meaning in found.meanings}
    for meaning in wanted.meanings:
        names = (meaning.field, *meaning.renamed_from)
        old = next((stored[name] for name in names if name in stored), None)
        if old is None or not meaning.agg:
            continue  # a user function knows itself what to make of a value
        where = f"field {meaning.field!r}" if meaning.field else "the value"
        if _accumulates(old) != _accumulates(meaning):
            text = f"{where}: expected {_told(meaning)}, found {_told(old)}"
            yield Difference(Compatibility.INCOMPATIBLE, text)
        elif old.of != meaning.of:
            text = (
                f"{where}: {meaning.agg} of {old.of or 'events'} goes on as {meaning.agg} of {meaning.of or 'events'}"
            )
            yield Difference(Compatibility.AS_IS, text)
        if old.keeps_nulls != meaning.keeps_nulls:
            now = "a null is a value" if meaning.keeps_nulls else "nulls are skipped, those that were kept too"
            yield Difference(Compatibility.AS_IS, f"{where}: from now on {now}")


def _accumulates(meaning: FieldMeaning) -> tuple[object, ...]:
    return (meaning.agg, meaning.by, meaning.bounds)


def _told(meaning: FieldMeaning) -> str:
    by = f" by {', '.join(meaning.by)}" if meaning.by else ""
    bounds = f" with bounds {[float(f'{b:g}') for b in meaning.bounds]}" if meaning.bounds else ""
    return f"{meaning.agg or 'a user function'}{by}{bounds}"
