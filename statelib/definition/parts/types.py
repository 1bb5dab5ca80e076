"""The types that a pipeline file may contain, and the types that a key may have."""

from collections.abc import Mapping
from functools import cache

from statelib.errors import StatelibError
from statelib.model.types import (
    SCALARS,
    STRING_VALUE,
    VOID,
    WINDOWS,
    ArrayOf,
    Decimal,
    Like,
    ListOf,
    MapOf,
    OneOf,
    Opaque,
    Option,
    Pojo,
    Row,
    Scalar,
    Sql,
    StateType,
    Ttl,
    Tuple,
    decimal_digits,
    parts_of,
)
from statelib.serializers.type_text import parse_type

DECIMAL = "decimal(precision, scale)"
"""The form of a decimal type in a pipeline file."""
KEY_TYPES = (*(name for name in SCALARS if name not in ("void", "bytes")), DECIMAL)
"""The types of a key column. ``bytes`` is not one: it is a Java array, whose hash is its identity, so that Flink
refuses it as a key."""
COLUMN_TYPES = (*(name for name in SCALARS if name not in ("void", "time")), DECIMAL)
"""The types of a source's column with one value."""

ARRAY_ELEMENTS = ("boolean", "char", "short", "int", "long", "float", "double", "string")
"""The element types of ``array<...>``. For ``byte[]`` there is ``bytes``."""
MAX_TUPLE_FIELDS = 25
"""Flink's largest tuple."""

Columns = Mapping[str, StateType | None]
"""Types of the declared columns, None for a type that cannot be parsed."""


@cache
def type_of(text: str) -> StateType:
    """Return the type of a text. Raises InvalidRequestError, which names the part that is not a type."""
    return parse_type(text)


def columns_of(declared: Mapping[str, str]) -> dict[str, StateType | None]:
    """Return the types of the declared columns, None for a type that cannot be parsed."""
    return {name: _type_or_none(text) for name, text in declared.items()}


def is_key_type(type_: StateType | None) -> bool:
    """Return whether a key may have the type. None counts as yes: another check reports it."""
    return type_ is None or isinstance(type_, Decimal) or (isinstance(type_, Scalar) and type_.name in KEY_TYPES)


def column_type_problem(type_: StateType) -> str:
    """Return why a source's column cannot have a type, '' if it can: the scalar types of :data:`COLUMN_TYPES`, and
    lists, maps and rows of such types."""
    match type_:
        case ListOf() | MapOf() | Row():
            return next(filter(None, map(column_type_problem, parts_of(type_))), "")
        case Scalar(name) if name in COLUMN_TYPES:
            return ""
    if decimal_digits(type_):
        return ""
    return f"a column is one of {', '.join(COLUMN_TYPES)}, or a list, map or row of them"


def undeclarable(kind: StateType) -> str:
    """Return why a pipeline file cannot declare a type, '' if its values can be written, restored and exported."""
    return _form_problem(kind) or _shape_problem(kind) or next(filter(None, map(undeclarable, parts_of(kind))), "")


def _form_problem(kind: StateType) -> str:
    if decimal_digits(kind):
        return ""
    if isinstance(kind, Opaque | Like | OneOf | Option | Sql) or kind == STRING_VALUE:
        return f"type {kind} exists only in Flink's snapshots: it can be read there, but not be written from values"
    if kind == VOID:
        return "type void has no values"
    if kind in WINDOWS.values():
        return f"type {kind} is the type of a window, not of a value: write 'window' in the state"
    return "a type cannot expire; write 'ttl' beside the state's kind" if isinstance(kind, Ttl) else ""


def _shape_problem(kind: StateType) -> str:
    match kind:
        case ArrayOf(element) if element.name not in ARRAY_ELEMENTS:
            instead = "bytes" if element.name == "byte" else f"list<{element}>"
            return f"type {kind}: expected an array of {', '.join(ARRAY_ELEMENTS)}; write {instead}"
        case Tuple(fields) if len(fields) > MAX_TUPLE_FIELDS:
            return f"type tuple<...>: expected at most {MAX_TUPLE_FIELDS} fields, found {len(fields)}; write row<...>"
        case Row(named) | Pojo(_, named) if len({field.name for field in named}) < len(named):
            return f"type {kind}: expected each name once"
    return ""


def _type_or_none(text: str) -> StateType | None:
    try:
        return type_of(text)
    except StatelibError:
        return None
