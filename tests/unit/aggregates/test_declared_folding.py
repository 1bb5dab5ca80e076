"""The description of a state in a snapshot is enough to merge its values."""

import numpy as np
import pyarrow as pa
import pytest

from statelib.aggregates.declared import folding_of
from statelib.aggregates.grouping import Grouping
from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.functions.declared import AggregateFunction
from statelib.model.state import FieldMeaning, StateDescriptor, StateKind
from statelib.model.types import LONG, Field, Row
from statelib.serializers.entries.values import decode_values, encode_values, value_arrow_type

FILE = """\
name: everything
source:
  path: "{data}/{start}-{end}"
  columns: {key: string, n: long, x: double, d: "decimal(9,2)", s: string, b: boolean, t: instant, item: string}
key: key
states:
  numbers:
    kind: value
    fields:
      count: {agg: count}
      some: {agg: count, of: s, where: b}
      sum: {agg: sum, of: n}
      doubles: {agg: sum, of: x}
      exact: {agg: sum, of: d}
      least: {agg: min, of: s}
      greatest: {agg: max, of: d}
      mean: {agg: avg, of: x}
      exact_mean: {agg: avg, of: d}
      bins: {agg: histogram, of: n, bounds: [1, 3]}
      spread: {agg: variance, of: x}
      deviation: {agg: stddev, of: n}
      every: {agg: bool_and, of: b}
      any: {agg: bool_or, of: b}
      decayed: {agg: decay, of: x, by: t, half_life: 1h}
      faded: {agg: decay, by: t, half_life: 1d}
  picks:
    kind: value
    fields:
      first: {agg: first, of: s, by: t}
      last: {agg: last, of: [s, n], by: [t, n]}
      kept: {agg: last, of: s, by: t, nulls: keep}
      latest: {agg: latest, by: t}
      top: {agg: top, of: s, by: n, n: 2}
      bottom: {agg: bottom, of: [s, x], by: x, n: 1}
      all: {agg: collect, of: s}
      few: {agg: collect, of: n, limit: 2}
      distinct: {agg: distinct, of: d}
  sketches:
    kind: value
    fields:
      users: {agg: approx_distinct, of: s}
      visitors: {agg: theta, of: n}
      sizes: {agg: approx_quantiles, of: x}
      days: {agg: bitmap, of: n}
  total: {kind: value, value: {agg: sum, of: d}}
  per_item: {kind: map, user_key: item, value: {agg: last, of: n, by: t}}
  items: {kind: map, user_key: item, fields: {n: {agg: count}, s: {agg: max, of: s}}}
backend: heap
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    path = tmp_path_factory.mktemp("pipelines") / "everything.yaml"
    path.write_text(FILE)
    return load_pipeline(path)


def events(pipeline: Pipeline, seed: int) -> pa.Table:
    random, rows = np.random.default_rng(seed), 60
    columns = {
        "key": [str(n) for n in range(rows)],
        "n": random.integers(0, 5, rows),
        "x": random.normal(size=rows),
        "d": [f"{n / 4:.2f}" for n in random.integers(-9, 9, rows)],
        "s": random.choice(["a", "b", "ü", None], rows),
        "b": random.choice([True, False, None], rows),
        "t": random.integers(0, 2**40, rows),
        "item": random.choice(["p", "q"], rows),
    }
    types = {"t": pa.timestamp("ns", "UTC"), "d": pa.decimal128(9, 2), "b": pa.bool_(), "s": pa.string()}
    return pa.table(
        {name: pa.array(values).cast(types.get(name, pa.array(values).type)) for name, values in columns.items()}
    )


@pytest.mark.parametrize("state", ["numbers", "picks", "sketches", "total", "per_item", "items"])
def test_values_are_merged_as_the_pipeline_merges_them(pipeline: Pipeline, state: str) -> None:
    descriptor = pipeline.schema().state(state)
    (function,) = (function for function in pipeline.functions() if function.state == state)
    assert isinstance(function, AggregateFunction)
    folding = folding_of(descriptor)
    assert folding is not None
    grouping = Grouping(np.arange(60) % 20, np.arange(20))
    before, more = (stored(descriptor, function, events(pipeline, seed), grouping) for seed in (1, 2))
    merged = folding.merged_values(before, more)
    assert merged.type == value_arrow_type(descriptor)
    assert encode_values(descriptor, merged).to_list() == (
        encode_values(descriptor, function.value.merged_values(before, more)).to_list()
    )


def stored(descriptor: StateDescriptor, function: AggregateFunction, batch: pa.Table, grouping: Grouping) -> pa.Array:
    """Return values of the state as they are after they were stored and read."""
    values = function.value.values(function.value.partials(batch, grouping), value_arrow_type(descriptor))
    return decode_values(descriptor, encode_values(descriptor, values))


def test_values_of_user_functions_cannot_be_merged() -> None:
    row = Row((Field("a", LONG), Field("b", LONG)))
    assert folding_of(StateDescriptor("s", StateKind.VALUE, row)) is None
    assert folding_of(StateDescriptor("s", StateKind.VALUE, row, meanings=(FieldMeaning("a", "sum", "x"),))) is None
    assert folding_of(StateDescriptor("s", StateKind.LIST, LONG, meanings=(FieldMeaning("", "sum", "x"),))) is None
