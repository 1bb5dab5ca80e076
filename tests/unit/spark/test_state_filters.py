"""Filters to key groups: never one too few."""

from datetime import date
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from statelib.model.state import KeyedStateSchema
from statelib.model.types import BYTES, DATE, DOUBLE, INSTANT, INT, LONG, STRING, Field, Row, StateType, Tuple
from statelib.serializers.entries.keys import key_groups
from statelib.serializers.registry import codec_of
from statelib.spark.dataframe.state_filters import wanted_key_groups

GROUP, KEY = ("key_group",), ("key",)


def wanted(key_type: StateType, *filters: Filter) -> frozenset[int] | None:
    return wanted_key_groups(KeyedStateSchema(key_type, 128, ()), filters)


def groups_of(key_type: StateType, *keys: Any) -> frozenset[int]:
    column = pa.array(keys, codec_of(key_type).arrow_type)
    return frozenset(key_groups(KeyedStateSchema(key_type, 128, ()), column).tolist())


@pytest.mark.parametrize(
    ("condition", "left"),
    [
        (EqualTo(GROUP, 7), {7}),
        (EqualTo(GROUP, 128), set()),
        (EqualNullSafe(GROUP, 7), {7}),
        (In(GROUP, (3, 5, 500)), {3, 5}),
        (In(GROUP, (3, None)), {3}),
        (GreaterThan(GROUP, 125), {126, 127}),
        (GreaterThanOrEqual(GROUP, 126), {126, 127}),
        (LessThan(GROUP, 2), {0, 1}),
        (LessThanOrEqual(GROUP, 1), {0, 1}),
    ],
)
def test_filters_on_key_groups_select_a_range(condition: Filter, left: set[int]) -> None:
    assert wanted(LONG, condition) == left


def test_several_filters_are_combined() -> None:
    assert wanted(LONG, GreaterThan(GROUP, 3), LessThan(GROUP, 6), IsNotNull(KEY)) == {4, 5}
    assert wanted(LONG, GreaterThan(GROUP, 3), LessThan(GROUP, 3)) == frozenset()


@pytest.mark.parametrize(
    ("key_type", "keys"),
    [(LONG, (1, 2**62, -5)), (INT, (-1, 0)), (STRING, ("", "N12345", "日本")), (DATE, (date(2013, 1, 1),))],
)
def test_filters_on_keys_select_their_key_groups(key_type: StateType, keys: tuple[Any, ...]) -> None:
    assert wanted(key_type, In(KEY, keys)) == groups_of(key_type, *keys)
    assert wanted(key_type, EqualTo(KEY, keys[0])) == groups_of(key_type, keys[0])
    everything = frozenset(range(128)) - groups_of(key_type, keys[0])
    assert wanted(key_type, EqualTo(KEY, keys[0]), In(GROUP, tuple(everything))) == frozenset()


def test_filters_on_a_key_of_several_columns_need_all_of_them() -> None:
    pair = Tuple((LONG, STRING))
    first, second = EqualTo(("key", "f0"), 4), EqualTo(("key", "f1"), "x")
    assert wanted(pair, first) is None
    assert wanted(pair, first, second) == groups_of(pair, {"f0": 4, "f1": "x"})
    row = Row((Field("origin", STRING), Field("dest", STRING)))
    filters = (EqualTo(("key", "dest"), "LAX"), EqualTo(("key", "origin"), "JFK"))
    assert wanted(row, *filters) == groups_of(row, {"origin": "JFK", "dest": "LAX"})


@pytest.mark.parametrize(
    ("key_type", "condition"),
    [
        (LONG, Not(EqualTo(GROUP, 7))),
        (LONG, Not(EqualTo(KEY, 7))),
        (LONG, GreaterThan(KEY, 7)),
        (LONG, EqualTo(("value",), 7)),
        (LONG, EqualNullSafe(KEY, None)),
        (LONG, EqualTo(KEY, 2**70)),
        (LONG, EqualTo(KEY, "seven")),
        (LONG, EqualTo(GROUP, 7.5)),
        (LONG, EqualNullSafe(GROUP, None)),
        (LONG, In(KEY, (None,))),
        (STRING, StringStartsWith(KEY, "N")),
        (BYTES, EqualTo(KEY, b"x")),
        (DOUBLE, EqualTo(KEY, 0.0)),
        (INSTANT, EqualTo(KEY, 0)),
        (Tuple((LONG, DOUBLE)), EqualTo(("key", "f0"), 1)),
    ],
)
def test_filters_that_cannot_be_translated_exclude_nothing(key_type: StateType, condition: Filter) -> None:
    """For doubles, Spark's 0.0 equals -0.0, which is in another key group; times have nanoseconds that Spark does
    not have."""
    assert wanted(key_type, condition) is None
