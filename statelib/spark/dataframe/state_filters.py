"""Which key groups a query's filters leave: bounds on ``key_group``, and keys whose key group can be computed.

The rows are not filtered here: Spark applies every filter again to what it gets.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from statelib.errors import StatelibError
from statelib.model.state import KeyedStateSchema
from statelib.model.types import BOOLEAN, BYTE, DATE, INT, LONG, SHORT, STRING, Row, StateType, Tuple
from statelib.serializers.keys import key_groups
from statelib.serializers.registry import codec_of

EXACT = (BOOLEAN, BYTE, SHORT, INT, LONG, STRING, DATE)
"""Spark's equality of these is Java's. It is not for floats (-0.0, NaN) and for times (nanoseconds)."""

Groups = npt.NDArray[np.int64]
_BOUNDS: Mapping[type[Filter], Callable[[Groups, Any], npt.NDArray[np.bool_]]] = {
    EqualTo: np.equal,
    EqualNullSafe: np.equal,
    GreaterThan: np.greater,
    GreaterThanOrEqual: np.greater_equal,
    LessThan: np.less,
    LessThanOrEqual: np.less_equal,
    In: np.isin,
}


def wanted_key_groups(schema: KeyedStateSchema, filters: Sequence[Filter]) -> frozenset[int] | None:
    """The key groups outside of which no row passes all the filters; None where they exclude none."""
    groups = np.arange(schema.max_parallelism, dtype=np.int64)
    left = groups
    for told in filters:
        values = _values(told)
        if _path(told) == ("key_group",) and type(told) in _BOUNDS and {type(value) for value in values} == {int}:
            left = left[_BOUNDS[type(told)](left, values if isinstance(told, In) else values[:1])]
    for keys in _keys(schema.key_type, filters):
        found = _groups_of(schema, keys)
        left = left if found is None else np.intersect1d(left, found)
    return None if len(left) == len(groups) else frozenset(left.tolist())


def _keys(key_type: StateType, filters: Sequence[Filter]) -> Iterable[list[Any]]:
    """Lists of keys, in each of which the key of a passing row is."""
    for told in filters:
        if _path(told) == ("key",) and isinstance(told, EqualTo | EqualNullSafe | In) and key_type in EXACT:
            yield _values(told)
    fixed = {
        path[1]: told.value
        for told in filters
        if isinstance(told, EqualTo | EqualNullSafe) and len(path := _path(told)) == 2 and path[0] == "key"
    }
    names = _field_names(key_type)
    if names and set(names) <= set(fixed) and None not in fixed.values():
        yield [{name: fixed[name] for name in names}]


def _field_names(key_type: StateType) -> tuple[str, ...]:
    """The fields of a key of several columns, none where one of them cannot be compared exactly."""
    if isinstance(key_type, Tuple) and all(field in EXACT for field in key_type.fields):
        return tuple(f"f{i}" for i in range(len(key_type.fields)))
    if isinstance(key_type, Row) and all(field.type in EXACT for field in key_type.fields):
        return tuple(field.name for field in key_type.fields)
    return ()


def _groups_of(schema: KeyedStateSchema, keys: list[Any]) -> Groups | None:
    """Their key groups; None where there are none, or a key is not one of the type: then nothing is left out."""
    if not keys:
        return None
    try:
        column = pa.array(keys, codec_of(schema.key_type).arrow_type)
        return key_groups(schema, column).astype(np.int64)
    except (pa.ArrowException, StatelibError, TypeError, ValueError, OverflowError):
        return None


def _path(told: Filter) -> tuple[str, ...]:
    return tuple(getattr(told, "attribute", ()))


def _values(told: Filter) -> list[Any]:
    values = told.value if isinstance(told, In) else (getattr(told, "value", None),)
    return [value for value in values if value is not None]
