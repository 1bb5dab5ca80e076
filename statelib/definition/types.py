"""The types a pipeline file may write, and which of them a key may have."""

from collections.abc import Mapping
from functools import cache

from statelib.errors import StatelibError
from statelib.model.types import (
    SCALARS,
    STRING_VALUE,
    VOID,
    WINDOWS,
    ArrayOf,
    Like,
    OneOf,
    Opaque,
    Pojo,
    Row,
    Scalar,
    Sql,
    StateType,
    Ttl,
    Tuple,
    parts_of,
)
from statelib.serializers.type_text import parse_type

KEY_TYPES = tuple(name for name in SCALARS if name not in ("void", "bytes"))
"""``bytes`` is a Java array, whose hash is its identity: Flink refuses it as a key."""
COLUMN_TYPES = tuple(name for name in SCALARS if name not in ("void", "time"))
"""What a column of a source may be: the types that Spark reads as one value."""

ARRAY_ELEMENTS = ("boolean", "char", "short", "int", "long", "float", "double", "string")
"""The elements that an ``array<...>`` may have; ``byte[]`` is ``bytes``."""
MAX_TUPLE_FIELDS = 25
"""Flink's largest tuple."""

Columns = Mapping[str, StateType | None]
"""Declared columns; None for one whose type could not be read."""


@cache
def type_of(text: str) -> StateType:
    """Parse a type; raises InvalidRequestError naming what is not understood."""
    return parse_type(text)


def columns_of(declared: Mapping[str, str]) -> dict[str, StateType | None]:
    return {name: _type_or_none(text) for name, text in declared.items()}


def is_key_type(type_: StateType | None) -> bool:
    """Whether a key may have it; None is taken as yes, it is reported elsewhere."""
    return type_ is None or (isinstance(type_, Scalar) and type_.name in KEY_TYPES)


def undeclarable(kind: StateType) -> str:
    """Return why no pipeline file can declare a type, '' if values of it can be written, restored and exported."""
    return _form_problem(kind) or _shape_problem(kind) or next(filter(None, map(undeclarable, parts_of(kind))), "")


def _form_problem(kind: StateType) -> str:
    if isinstance(kind, Opaque | Like | OneOf | Sql) or kind == STRING_VALUE:
        return f"type {kind} is a form of Flink's own: it is read from Flink's snapshots, and never written from values"
    if kind == VOID:
        return "type void holds nothing"
    if kind in WINDOWS.values():
        return f"type {kind} is what a state is kept by: write 'window' in the state"
    return "a type cannot expire; say 'ttl' beside the state's kind" if isinstance(kind, Ttl) else ""


def _shape_problem(kind: StateType) -> str:
    match kind:
        case ArrayOf(element) if element.name not in ARRAY_ELEMENTS:
            instead = "bytes" if element.name == "byte" else f"list<{element}>"
            return f"type {kind}: an array is of {', '.join(ARRAY_ELEMENTS)}; say {instead}"
        case Tuple(fields) if len(fields) > MAX_TUPLE_FIELDS:
            return f"type tuple<...>: expected at most {MAX_TUPLE_FIELDS} fields, found {len(fields)}; say row<...>"
        case Row(named) | Pojo(_, named) if len({field.name for field in named}) < len(named):
            return f"type {kind}: expected each name once"
    return ""


def _type_or_none(text: str) -> StateType | None:
    try:
        return type_of(text)
    except StatelibError:
        return None
