import numpy as np
import pytest

from statelib.aggregates.sketches.kll import Levels


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
