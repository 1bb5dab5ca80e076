"""The aggregate ``decay``: a sum or a count whose parts lose half of their weight in each half-life."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import Grouping, one_array, reduce_groups, valid_rows
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.picks import clean
from statelib.serializers.columns.arrow import number_array, numbers
from statelib.serializers.columns.decimal_words import as_doubles

Doubles = npt.NDArray[np.float64]
Nanos = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Decay:
    """``decay``: the weighted sum, and the time of the last event, at which the sum has this value."""

    spec: AggregateSpec

    @property
    def half_life_ns(self) -> float:
        return self.spec.bounds[0] * 1e6

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        names = [name for name, _ in self.spec.columns]
        columns = [clean(one_array(events[name])) for name in names]
        rows, codes = valid_rows(columns), grouping.codes
        if len(rows) < len(codes):
            columns, codes = [column.take(pa.array(rows)) for column in columns], codes[rows]
        times = np.asarray(numbers(columns[0], "i8"), np.int64)
        values = np.ones(len(codes)) if len(columns) == 1 else as_doubles(columns[1]).to_numpy()
        last = reduce_groups(pa.array(times), codes, grouping.size, "max").fill_null(0).to_numpy()
        sums = np.bincount(codes, self._faded(values, last[codes], times), minlength=grouping.size)
        return self._accumulators(
            np.asarray(sums, np.float64), last, columns[0].type, np.bincount(codes, minlength=grouping.size) == 0
        )

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        stored, added = (_sums_and_times(part) for part in (before, more))
        (sums, times, valid), (sums_2, times_2, valid_2) = stored, added
        times, times_2 = np.where(valid, times, times_2), np.where(valid_2, times_2, times)
        last = np.maximum(times, times_2)
        with np.errstate(invalid="ignore"):  # infinities of both signs have no sum
            total = self._faded(sums, last, times) + self._faded(sums_2, last, times_2)
        return self._accumulators(total, last, before.type.field(1).type, ~(valid | valid_2))

    def _faded(self, values: Doubles, last: Nanos, times: Nanos) -> Doubles:
        """Return each value after its decay from its own time in ``times`` to the time in ``last``: half of it is left
        per half-life. An infinite value stays infinite, also if its weight is rounded to 0."""
        # No time is later than its last one. Their difference may exceed a signed long, but not an unsigned one.
        ages = last.view(np.uint64) - times.view(np.uint64)
        weights = np.exp2(-(ages.astype(np.float64)) / self.half_life_ns)
        return np.asarray(np.multiply(values, weights, out=values.copy(), where=~np.isinf(values)), np.float64)

    def _accumulators(
        self, sums: Doubles, times: Nanos, time_type: pa.DataType, null: npt.NDArray[np.bool_]
    ) -> pa.Array:
        fields = [pa.array(sums), number_array(times, time_type)]
        return pa.StructArray.from_arrays(fields, ["value", f"by_{self.spec.by[0][0]}"], mask=pa.array(null))


def _sums_and_times(accumulators: pa.Array) -> tuple[Doubles, Nanos, npt.NDArray[np.bool_]]:
    """Return the sums, the times and whether there are any, with zeros for a null."""
    sums, times = accumulators.flatten()
    zero = pa.scalar(0, pa.int64()).cast(times.type)
    valid = np.asarray(accumulators.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    return sums.fill_null(0.0).to_numpy(), np.asarray(numbers(times.fill_null(zero), "i8"), np.int64), valid
