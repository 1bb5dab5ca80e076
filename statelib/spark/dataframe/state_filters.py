"""The key groups that can contain rows that pass a query's filters. They follow from filters on ``key_group``, and from
keys whose key group can be computed.

The rows are not filtered here, because Spark applies every filter to the rows that it receives.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
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

from statelib.model.state import KeyedStateSchema
from statelib.model.types import Row, StateType, Tuple
from statelib.savepoints.tables.exact_keys import EXACT, key_groups_of

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
    """Return the key groups that can contain rows that pass all filters; None if these are all key groups."""
    groups = np.arange(schema.max_parallelism, dtype=np.int64)
    wanted = groups
    for query_filter in filters:
        values = _values(query_filter)
        kind = type(query_filter)
        if _path(query_filter) == ("key_group",) and kind in _BOUNDS and {type(value) for value in values} == {int}:
            wanted = wanted[_BOUNDS[kind](wanted, values if isinstance(query_filter, In) else values[:1])]
    for keys in _keys(schema.key_type, filters):
        key_groups_of_keys = key_groups_of(schema, keys)
        wanted = wanted if key_groups_of_keys is None else np.intersect1d(wanted, key_groups_of_keys)
    return None if len(wanted) == len(groups) else frozenset(wanted.tolist())


def _keys(key_type: StateType, filters: Sequence[Filter]) -> Iterable[list[Any]]:
    """Yield lists of keys. A row that passes all filters has one of the keys in each list."""
    for query_filter in filters:
        by_key = isinstance(query_filter, EqualTo | EqualNullSafe | In) and _path(query_filter) == ("key",)
        if by_key and key_type in EXACT:
            yield _values(query_filter)
    fixed = {
        path[1]: query_filter.value
        for query_filter in filters
        if isinstance(query_filter, EqualTo | EqualNullSafe)
        and len(path := _path(query_filter)) == 2
        and path[0] == "key"
    }
    names = _field_names(key_type)
    if names and set(names) <= set(fixed) and None not in fixed.values():
        yield [{name: fixed[name] for name in names}]


def _field_names(key_type: StateType) -> tuple[str, ...]:
    """Return the names of the fields of a key with several columns; no names if a field is not of a type in
    :data:`~statelib.savepoints.tables.exact_keys.EXACT`, or if the key has no fields."""
    if isinstance(key_type, Tuple) and all(field in EXACT for field in key_type.fields):
        return tuple(f"f{i}" for i in range(len(key_type.fields)))
    if isinstance(key_type, Row) and all(field.type in EXACT for field in key_type.fields):
        return tuple(field.name for field in key_type.fields)
    return ()


def _path(query_filter: Filter) -> tuple[str, ...]:
    """Return the path of the column that a filter compares; an empty path if the filter compares no column."""
    return tuple(getattr(query_filter, "attribute", ()))


def _values(query_filter: Filter) -> list[Any]:
    """Return the values, without null, with which a filter compares its column."""
    values = query_filter.value if isinstance(query_filter, In) else (getattr(query_filter, "value", None),)
    return [value for value in values if value is not None]
