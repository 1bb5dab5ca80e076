"""The aggregates ``top`` and ``bottom``: the events with the greatest or least values of some columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.aggregates.grouping import Grouping, Rows, list_array, one_array, stack, valid_rows
from statelib.aggregates.kinds import AggregateSpec
from statelib.aggregates.picks import clean


@dataclass(frozen=True)
class Ranked:
    """``top`` and ``bottom``: a list of at most ``n`` events, the best first. Events with equal ``by`` columns are
    ordered by their values, null before all others, so that the result does not depend on the order of events."""

    spec: AggregateSpec

    def partial(self, events: pa.Table, grouping: Grouping) -> pa.Array:
        columns = [clean(one_array(events[name])) for name, _ in self.spec.columns]
        order = len(self.spec.by)
        rows, codes = valid_rows(columns[:order] if self.spec.together else columns), grouping.codes
        if len(rows) < len(codes):
            columns, codes = [column.take(pa.array(rows)) for column in columns], codes[rows]
        return self._lists(columns[:order], columns[order:], codes, grouping.size)

    def merge(self, before: pa.Array, more: pa.Array) -> pa.Array:
        lists, codes = stack(before, more)
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
        value, *order = lists.flatten().flatten()
        values = value.flatten() if self.spec.together else [value]
        return self._lists(order, values, np.repeat(codes, lengths), len(before))

    def _lists(self, order: Sequence[pa.Array], values: Sequence[pa.Array], codes: Rows, size: int) -> pa.Array:
        best, counts = self._best(order, values, codes, size)
        order, values = ([column.take(pa.array(best)) for column in columns] for columns in (order, values))
        names = [name for name, _ in self.spec.together]
        value = pa.StructArray.from_arrays(values, names) if names else values[0]
        fields = ["value", *(f"by_{name}" for name, _ in self.spec.by)]
        return list_array(pa.StructArray.from_arrays([value, *order], fields), counts)

    def _best(self, order: Sequence[pa.Array], values: Sequence[pa.Array], codes: Rows, size: int) -> tuple[Rows, Rows]:
        """Return the rows of the best events group by group, the best first, and their number per group."""
        columns = {"group": pa.array(codes)}
        for i, column in enumerate([*order, *values]):
            if column.null_count:
                columns[f"valid {i}"] = column.is_valid()  # null is less than all values
            columns[f"value {i}"] = column
        best_first = "descending" if self.spec.agg == "top" else "ascending"
        keys = [(name, "ascending" if name == "group" else best_first) for name in columns]
        ordered = pc.sort_indices(pa.table(columns), sort_keys=keys).to_numpy()
        return first_of_groups(ordered, codes[ordered], size, int(self.spec.bounds[0]))


def first_of_groups(rows: Rows, codes: Rows, size: int, most: int) -> tuple[Rows, Rows]:
    """Return the first ``most`` of the ``rows`` of each group, or all if there are fewer, and their number per group.
    The rows lie group by group; ``codes`` are their groups."""
    counts = np.bincount(codes, minlength=size)
    place = np.arange(len(codes)) - (np.cumsum(counts) - counts)[codes]
    return rows[place < most], np.minimum(counts, most)
