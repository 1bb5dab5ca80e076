"""The types a pipeline file may write, and which of them a key may have."""

from collections.abc import Mapping
from functools import cache

from statelib.errors import StatelibError
from statelib.model.types import SCALARS, Scalar, StateType
from statelib.serializers.type_text import parse_type

KEY_TYPES = tuple(name for name in SCALARS if name not in ("void", "bytes"))
"""``bytes`` is a Java array, whose hash is its identity: Flink refuses it as a key."""
COLUMN_TYPES = tuple(name for name in SCALARS if name not in ("void", "time"))
"""What a column of a source may be: the types that Spark reads as one value."""

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


def _type_or_none(text: str) -> StateType | None:
    try:
        return type_of(text)
    except StatelibError:
        return None
