import numpy as np
import pyarrow as pa
import pytest

from statelib.aggregates.accumulators import accumulator_of
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.sketches.kll import Levels
from statelib.model.types import DOUBLE

QUANTILES = accumulator_of(AggregateSpec("approx_quantiles", of=("x", DOUBLE)))


def rank(sketch: Levels, value: float) -> float:
    below = sum(int((part <= value).sum()) << level for level, part in enumerate(sketch.values))
    return below / sketch.count


@pytest.mark.parametrize("batch", [16, 64, 1024])
def test_ranks_are_right_after_many_batches_of_a_power_of_two(batch):
    random = np.random.default_rng(7)
    values = np.sort(random.random((400, batch)))
    sketch = Levels.of_values(values[0])
    for more in values[1:]:
        sketch = sketch.merged(Levels.of_values(more)).compacted()
    for quantile in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert rank(sketch, quantile) == pytest.approx((values <= quantile).mean(), abs=0.014)


def test_the_newest_values_of_a_sketch_of_spark_are_sorted_where_it_does_not_sort_them():
    own = Levels.of_values(np.arange(300.0)).compacted().merged(Levels.of_values(np.arange(40.0)))
    assert len(own.values[0]) == 40
    theirs = bytearray(Levels(own.count, own.least, own.most, [own.values[0][::-1], *own.values[1:]]).serialized())
    theirs[3] = 0
    stored = QUANTILES.merge(pa.nulls(1, pa.binary()), pa.array([bytes(theirs)], pa.binary()))
    assert stored.to_pylist() == [own.serialized()]


def test_an_empty_sketch_of_spark_is_null():
    empty = pa.array([bytes([2, 1, 15, 1, 200, 0, 8, 0])], pa.binary())
    assert QUANTILES.merge(pa.nulls(1, pa.binary()), empty).to_pylist() == [None]
