"""The comparison of a stored state with the wanted one: whether its values can be used, migrated or neither.

These are the rules of Flink's TypeSerializerSchemaCompatibility for the changes that batch pipelines make: fields of a
Row are added, removed, moved or renamed, and numbers are widened. The fields of an aggregate's accumulator are fixed;
only its numbers may be widened.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from statelib.model.state import FieldMeaning, StateDescriptor, StateKind
from statelib.model.types import (
    BIGDECIMAL,
    VOID,
    ArrayOf,
    Decimal,
    Field,
    ListOf,
    MapOf,
    Row,
    Scalar,
    StateType,
    Ttl,
    Tuple,
)
from statelib.restore.schemas.matching import as_stored, describe, keeps_bytes

WIDER = {
    "byte": ("short", "int", "long"),
    "short": ("int", "long"),
    "int": ("long",),
    "float": ("double",),
}
"""The wider types of each number type, which hold all its values without loss. Decimals are compared by digits."""

WHOLE_DIGITS = {"byte": 3, "short": 5, "int": 10, "long": 19}
"""The digits that a decimal needs before the point to hold all values of a type of whole numbers."""

EarlierNames = Mapping[str, Sequence[str]]
"""The earlier names of each field."""


class Compatibility(StrEnum):
    """The effect of a schema change on stored state, in Flink's terms."""

    AS_IS = "COMPATIBLE_AS_IS"
    AFTER_MIGRATION = "COMPATIBLE_AFTER_MIGRATION"
    INCOMPATIBLE = "INCOMPATIBLE"


ORDER = tuple(Compatibility)


@dataclass(frozen=True)
class Difference:
    """One difference between two states. ``text`` describes it and names the field."""

    compatibility: Compatibility
    text: str


def compare_states(stored: StateDescriptor, wanted: StateDescriptor) -> tuple[Difference, ...]:
    """Return all differences between a stored state and the wanted one, except a difference of their names."""
    if not _has_same_keys(stored, wanted):
        return (Difference(Compatibility.INCOMPATIBLE, f"expected {describe(wanted)}, found {describe(stored)}"),)
    old, new = stored.value_type, wanted.value_type
    if isinstance(old, Ttl) and isinstance(new, Ttl):
        old, new = old.value, new.value
    rule = evolving(stored, wanted)
    return (
        *_columns(stored, wanted),
        *_windows(stored, wanted),
        *_types(old, new, "the value", rule),
        *_meanings(stored, wanted),
    )


def _columns(stored: StateDescriptor, wanted: StateDescriptor) -> Iterator[Difference]:
    """Yield the user key and the time of windows that are of another column, where both columns are known. It may be
    the same one with another name."""
    pairs = ("the user key", stored.user_key, wanted.user_key), ("the time of windows", stored.time, wanted.time)
    for what, old, new in pairs:
        if old and new and old != new:
            yield Difference(Compatibility.AS_IS, f"{what}: {old} goes on as {new}")


def _windows(stored: StateDescriptor, wanted: StateDescriptor) -> Iterator[Difference]:
    """Yield the difference between windows whose form is recorded. Windows of another form would lie beside the stored
    ones and not contain their events. Sessions with another gap are continued, as Flink continues them."""
    if not stored.windows or not wanted.windows or stored.windows == wanted.windows:
        return
    if stored.has_sessions and wanted.has_sessions:
        yield Difference(Compatibility.AS_IS, f"windows: {stored.windows} goes on as {wanted.windows}")
    else:
        text = f"windows: expected {wanted.windows}, found {stored.windows}"
        yield Difference(Compatibility.INCOMPATIBLE, text)


def _has_same_keys(stored: StateDescriptor, wanted: StateDescriptor) -> bool:
    """Return whether the parts of a state that can never be migrated are unchanged: its kind and all types that are
    part of a key."""
    pairs = (
        (stored.user_key_type or VOID, wanted.user_key_type or VOID),
        (stored.namespace_type, wanted.namespace_type),
    )
    return stored.kind == wanted.kind and all(keeps_bytes(old, new) for old, new in pairs)


@dataclass(frozen=True)
class Evolving:
    """The rule for a Row in a value: whether its fields may change.

    ``closed`` forbids changes of this Row and of the Rows in it. ``fields`` holds the fields of this Row that have a
    rule of their own. ``earlier`` holds the earlier names of its fields. ``named``: whether the stored names of fields
    are those of a pipeline file. Flink stores no names. ``unaddable`` holds the aggregates of fields that cannot be
    added. The rule of a list is that of its elements."""

    closed: bool = False
    fields: "Mapping[str, Evolving]" = dataclasses.field(default_factory=dict)
    earlier: EarlierNames = dataclasses.field(default_factory=dict)
    named: bool = False
    unaddable: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def within(self, name: str) -> "Evolving":
        """Return the rule for the values of one field."""
        return dataclasses.replace(self.fields.get(name) or Evolving(self.closed), named=self.named)

    @property
    def inner(self) -> "Evolving":
        """The rule without earlier names and aggregates, which only the fields of the outermost Row have."""
        return dataclasses.replace(self, earlier={}, unaddable={})


def evolving(stored: StateDescriptor, wanted: StateDescriptor) -> Evolving:
    """Return the rule for the values of a state. A manifest records meanings for every state of a pipeline file."""
    aggregates = {meaning.field: _accumulator(meaning) for meaning in wanted.meanings if meaning.agg}
    earlier = {meaning.field: meaning.renamed_from for meaning in wanted.meanings}
    unaddable = {meaning.field: meaning.agg for meaning in wanted.meanings if meaning.needs_all_events}
    rule = aggregates.get("") or Evolving(wanted.kind is StateKind.LIST, aggregates, earlier, unaddable=unaddable)
    return dataclasses.replace(rule, named=bool(stored.meanings))


def _accumulator(meaning: FieldMeaning) -> Evolving:
    """Return the rule for an accumulator: it is closed, but columns of a stored event may be added or removed."""
    return Evolving(closed=True, fields={"value": Evolving()} if meaning.together else {})


def _types(stored: StateType, wanted: StateType, where: str, rule: Evolving) -> Iterator[Difference]:
    if stored == wanted:
        return
    match stored, wanted:
        case Scalar() | Decimal(), Scalar() | Decimal() if effect := _widening(stored, wanted):
            yield Difference(effect, f"{where}: {stored} widened to {wanted}")
        case (ArrayOf(old), ArrayOf(new)) | (ListOf(old), ListOf(new)):
            yield from _types(old, new, f"{where}, elements", rule.inner)
        case MapOf(), MapOf() if keeps_bytes(stored.key, wanted.key):
            yield from _types(stored.value, wanted.value, f"{where}, values", rule.within(""))
        case Tuple(), Tuple() if len(stored.fields) == len(wanted.fields):
            for i, (old, new) in enumerate(zip(stored.fields, wanted.fields, strict=True)):
                yield from _types(old, new, f"{where}, f{i}", rule.within(""))
        case Row(), Row():
            yield from _rows(stored, wanted, where, rule)
        case _:
            yield Difference(Compatibility.INCOMPATIBLE, f"{where}: expected {wanted}, found {stored}")


def _widening(stored: Scalar | Decimal, wanted: Scalar | Decimal) -> Compatibility | None:
    """Return the effect of another type of numbers; None if it cannot hold every stored value. A decimal type can if it
    has no fewer digits on either side of the point than a decimal, or no fewer before it than a whole number. Whether a
    BigDecimal of Flink fits is found out when it is read."""
    if isinstance(wanted, Scalar):
        wider = isinstance(stored, Scalar) and wanted.name in WIDER.get(stored.name, ())
    elif isinstance(stored, Scalar):
        digits = WHOLE_DIGITS.get(stored.name)
        wider = stored == BIGDECIMAL or (digits is not None and wanted.precision - wanted.scale >= digits)
    elif keeps_bytes(stored, wanted):
        return Compatibility.AS_IS
    else:
        more_digits = wanted.precision - stored.precision
        wider = 0 <= wanted.scale - stored.scale <= more_digits
    return Compatibility.AFTER_MIGRATION if wider else None


def _rows(stored: Row, wanted: Row, where: str, rule: Evolving) -> Iterator[Difference]:
    origin = field_origins(stored, wanted, rule)
    names = [f.name for f in stored.fields]
    if rule.closed and (origin != tuple(range(len(names))) or len(names) != len(wanted.fields)):
        yield Difference(Compatibility.INCOMPATIBLE, f"{where}: expected {wanted}, found {stored}")
        return
    yield from _ambiguous(stored, wanted, origin, rule.earlier)
    yield from _moves(stored, wanted, where, origin, rule)
    for field, index in zip(wanted.fields, origin, strict=True):
        if index is not None:
            yield from _types(stored.fields[index].type, field.type, f"field {field.name!r}", rule.within(field.name))


def _ambiguous(stored: Row, wanted: Row, origin: tuple[int | None, ...], earlier: EarlierNames) -> Iterator[Difference]:
    """Yield the fields that could continue either of two stored fields, of which the other one would be dropped."""
    gone = {field.name for i, field in enumerate(stored.fields) if i not in origin}
    for field, index in zip(wanted.fields, origin, strict=True):
        others = [name for name in earlier.get(field.name, ()) if name in gone]
        if index is not None and others:
            text = ambiguous("field", field.name, stored.fields[index].name, others[0])
            yield Difference(Compatibility.INCOMPATIBLE, text)


def ambiguous(what: str, name: str, origin: str, other: str) -> str:
    """Return the text about a field or state that has the name ``name`` and could continue ``origin`` or ``other``,
    which are both stored. The one that it does not continue would be dropped."""
    return (
        f"{what} {name!r}: stored are both {origin!r} and {other!r}, and 'renamed_from' names {other!r}: to continue"
        f" {other!r}, leave {origin!r} out one run earlier; to continue {origin!r} and drop {other!r}, take {other!r}"
        " out of 'renamed_from'"
    )


def _moves(
    stored: Row, wanted: Row, where: str, origin: tuple[int | None, ...], rule: Evolving
) -> Iterator[Difference]:
    """Yield the fields that are added, dropped, renamed or moved."""
    gone = [field for i, field in enumerate(stored.fields) if i not in origin]
    for field, index in zip(wanted.fields, origin, strict=True):
        if index is None:
            yield _added(field, gone, rule)
        elif stored.fields[index].name != field.name:
            yield Difference(Compatibility.AS_IS, f"field {field.name!r} was called {stored.fields[index].name!r}")
    for field in gone:
        yield Difference(Compatibility.AFTER_MIGRATION, f"field {field.name!r} ({field.type}) is dropped")
    kept_indexes = [index for index in origin if index is not None]
    if kept_indexes != sorted(kept_indexes):
        yield Difference(Compatibility.AFTER_MIGRATION, f"{where}: fields in another order")


def _added(field: Field, gone: Sequence[Field], rule: Evolving) -> Difference:
    """Return the difference of a new field. It is incompatible if a field of the same type was removed, because the new
    field is then probably that field with another name. A pipeline file has no place for the earlier names of the
    columns of a stored event and of the fields of a declared Row."""
    for other in gone:
        if as_stored(other.type) == as_stored(field.type):
            continued = (
                f"say 'renamed_from: {other.name}'"
                if field.name in rule.earlier
                else f"call it {other.name!r} as before"
            )
            return Difference(
                Compatibility.INCOMPATIBLE,
                f"field {field.name!r}: expected {field.type}, found no such field but {other.name!r} of the same type:"
                f" {continued}, or leave {other.name!r} out one run earlier, which drops its values",
            )
    if field.name in rule.unaddable:
        return Difference(
            Compatibility.INCOMPATIBLE,
            f"field {field.name!r}: expected {rule.unaddable[field.name]}, found no such field, and it cannot be added:"
            " the source takes back values of earlier events, which would not be in it; a pipeline of another name that"
            " replays all events, or is seeded, can have it",
        )
    return Difference(Compatibility.AFTER_MIGRATION, f"field {field.name!r} ({field.type}) is new: null")


def field_origins(stored: Row, wanted: Row, rule: Evolving) -> tuple[int | None, ...]:
    """Return the index in the stored Row per wanted field, or None if the field is new.

    Fields are matched by name, then by earlier names. They are matched by position if the stored Row has no names,
    because Flink does not write names. A wanted field with the name of another position shows that the names count."""
    names = [field.name for field in stored.fields]
    if not rule.named and names == [f"f{i}" for i in range(len(names))] and len(names) == len(wanted.fields):
        pairs = zip(names, wanted.fields, strict=True)
        if all(field.name == name or field.name not in names for name, field in pairs):
            return tuple(range(len(names)))
    present = {field.name for field in wanted.fields}
    origin: list[int | None] = []
    for field in wanted.fields:
        former = [name for name in rule.earlier.get(field.name, ()) if name not in present]
        origin.append(next((names.index(name) for name in (field.name, *former) if name in names), None))
    return tuple(origin)


def _meanings(stored: StateDescriptor, wanted: StateDescriptor) -> Iterator[Difference]:
    """Yield the accumulators whose type is unchanged but whose meaning is not. Nothing is yielded for fields without a
    recorded meaning."""
    stored_meanings = {meaning.field: meaning for meaning in stored.meanings}
    for meaning in wanted.meanings:
        names = (meaning.field, *meaning.renamed_from)
        old = next((stored_meanings[name] for name in names if name in stored_meanings), None)
        if old is None or not meaning.agg:
            continue  # a user function interprets its own values
        where = f"field {meaning.field!r}" if meaning.field else "the value"
        if _accumulates(old) != _accumulates(meaning):
            text = f"{where}: expected {_description(meaning)}, found {_description(old)}"
            yield Difference(Compatibility.INCOMPATIBLE, text)
        elif old.hashes and old.hashes != meaning.hashes:
            text = f"{where}: expected {meaning.agg} of {meaning.hashes}, found the hashes of {old.hashes}"
            yield Difference(Compatibility.INCOMPATIBLE, text)
        elif (old.of, old.where) != (meaning.of, meaning.where):
            text = f"{where}: {meaning.agg} of {_counted(old)} goes on as {meaning.agg} of {_counted(meaning)}"
            yield Difference(Compatibility.AS_IS, text)
        if old.keeps_nulls != meaning.keeps_nulls:
            now = "a null is a value" if meaning.keeps_nulls else "nulls are skipped, those that were kept too"
            yield Difference(Compatibility.AS_IS, f"{where}: from now on {now}")


def _accumulates(meaning: FieldMeaning) -> tuple[object, ...]:
    """Return the parts of a meaning that a stored accumulator depends on."""
    return (meaning.agg, meaning.by, meaning.bounds)


def _counted(meaning: FieldMeaning) -> str:
    """Return the events or the column that an aggregate reads, as text."""
    return f"{meaning.of or 'events'}{f' where {meaning.where}' if meaning.where else ''}"


def _description(meaning: FieldMeaning) -> str:
    by = f" by {', '.join(meaning.by)}" if meaning.by else ""
    of_histogram = "bounds " if meaning.agg == "histogram" else ""
    bounds = f" with {of_histogram}{[float(f'{b:g}') for b in meaning.bounds]}" if meaning.bounds else ""
    return f"{meaning.agg or 'a user function'}{by}{bounds}"
