"""The value of a state that is declared with aggregates: one accumulator, or a Row of them, and how two are merged."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from statelib.aggregates.accumulators import FoldingAccumulator, accumulator_of
from statelib.aggregates.grouping import Grouping, Rows, nullable_rows, one_array
from statelib.aggregates.kinds import AggregateSpec
from statelib.errors import InvalidRequestError


@dataclass(frozen=True)
class Folding:
    """The computation of the values of one state. It can be pickled.

    ``fields`` holds one (name, aggregate) per field of the state's Row, or a single aggregate with the name None if the
    state holds the accumulator itself. ``state`` is named in errors. "Parts" are the accumulators of values, one array
    per field."""

    state: str
    fields: tuple[tuple[str | None, AggregateSpec], ...]

    @property
    def is_single(self) -> bool:
        """Whether a value is one accumulator instead of a Row."""
        return self.fields[0][0] is None

    @property
    def columns(self) -> set[str]:
        """The names of the columns of events that it reads."""
        read = {name for _, spec in self.fields for name, _ in spec.columns}
        return read | {spec.where for _, spec in self.fields if spec.where}

    def parts(self, values: pa.Array) -> list[pa.Array]:
        """Return the accumulators of values of the state."""
        return [values] if self.is_single else list(values.flatten())

    def values(self, parts: Sequence[pa.Array], type_: pa.DataType) -> pa.Array:
        """Return values of the state, which have the Arrow type ``type_``; the inverse of :meth:`parts`."""
        return parts[0] if self.is_single else pa.StructArray.from_arrays(parts, fields=list(type_))

    def partials(self, events: pa.Table, grouping: Grouping) -> list[pa.Array]:
        """Return the accumulators of the events alone, one row per group. Raise InvalidRequestError, as accumulators
        do."""
        partials = []
        for name, spec in self.fields:
            with self.named(name):
                partials.append(accumulator_of(spec).partial(*counted(spec, events, grouping)))
        return partials

    def merged(self, before: Sequence[pa.Array], more: Sequence[pa.Array]) -> list[pa.Array]:
        """Return accumulators merged with more, row by row; null leaves an accumulator unchanged. Raise
        InvalidRequestError, as accumulators do."""
        merged = []
        for (name, spec), old, new in zip(self.fields, before, more, strict=True):
            with self.named(name):
                merged.append(accumulator_of(spec).merge(old, new.cast(old.type)).cast(old.type))
        return merged

    def folded(self, before: Sequence[pa.Array], events: pa.Table, grouping: Grouping) -> list[pa.Array]:
        """Return the accumulators of the groups, merged with those of the events. Raise as :meth:`partials` and
        :meth:`merged`."""
        folded = []
        for (name, spec), old in zip(self.fields, before, strict=True):
            with self.named(name):
                accumulator, part = accumulator_of(spec), counted(spec, events, grouping)
                if isinstance(accumulator, FoldingAccumulator):
                    new = accumulator.fold(old, *part)
                else:
                    new = accumulator.merge(old, accumulator.partial(*part).cast(old.type))
                folded.append(new.cast(old.type))
        return folded

    def merged_values(self, before: pa.Array, more: pa.Array) -> pa.Array:
        """Return values merged with more, row by row. Raise as :meth:`merged`."""
        return self.values(self.merged(self.parts(before), self.parts(more)), before.type)

    def merged_groups(self, values: pa.Array, codes: Rows) -> tuple[pa.Array, Rows]:
        """Return (one value per group, code of each group in ascending order): the values of each group merged in the
        order of their rows. Raise as :meth:`merged`."""
        order = np.argsort(codes, kind="stable")
        values, codes = values.take(pa.array(order)), codes[order]
        while len(codes) > 1 and (codes[1:] == codes[:-1]).any():
            values, codes = self._pairs_merged(values, codes)
        return values, codes

    def _pairs_merged(self, values: pa.Array, codes: Rows) -> tuple[pa.Array, Rows]:
        """Merge the second value of each group into the first, the fourth into the third, and so on. The rows are
        sorted by their codes."""
        begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        within = np.arange(len(codes)) - np.repeat(begins, np.diff(np.append(begins, len(codes))))
        odd = np.flatnonzero(within % 2)
        firsts = np.flatnonzero(within % 2 == 0)
        partners = np.full(len(codes), -1, np.int64)
        partners[odd - 1] = odd
        first, second = values.take(pa.array(firsts)), values.take(nullable_rows(partners[firsts]))
        return self.merged_values(first, second), codes[firsts]

    @contextmanager
    def named(self, field: str | None) -> Iterator[None]:
        """Name the state and the field in errors of the block."""
        try:
            yield
        except InvalidRequestError as error:
            where = f"state {self.state}" if field is None else f"state {self.state}, field {field}"
            raise InvalidRequestError(f"{where}: {error.message}", kind=error.kind, hint=error.hint) from error


def counted(spec: AggregateSpec, events: pa.Table, grouping: Grouping) -> tuple[pa.Table, Grouping]:
    """Return the columns that an aggregate reads, of the events that count by its column ``where``, and their groups,
    whose numbers are unchanged. A null counts as false. Without ``where`` the events are returned as they are."""
    if not spec.where:
        return events, grouping
    rows = np.flatnonzero(one_array(events[spec.where]).fill_null(False).to_numpy(zero_copy_only=False))
    read = events.select(list(dict.fromkeys(name for name, _ in spec.columns)))
    return read.take(pa.array(rows)), Grouping(grouping.codes[rows], grouping.first)
