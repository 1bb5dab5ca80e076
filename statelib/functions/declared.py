"""States declared with aggregates: partial accumulators of the batch merged into the stored ones."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend
from statelib.errors import InvalidRequestError
from statelib.functions.accumulators import accumulator_of
from statelib.functions.aggregates import AggregateSpec
from statelib.functions.grouping import group_rows, one_array, valid_rows
from statelib.serializers.keys import encode_keys
from statelib.serializers.values import value_arrow_type


@dataclass(frozen=True)
class AggregateFunction:
    """``fields``: one (name, aggregate) a field of the Row that the state holds, or a single one
    with the name None for a state that holds the bare accumulator. ``user_key``: the column of a
    map state's keys; ``drop_null_user_keys``: whether events without one leave the map alone
    (else they are an InvalidRequestError, kind ``null-user-key``).

    A Row is written for every key with an event; a bare accumulator only once it is not null.
    """

    state: str
    fields: tuple[tuple[str | None, AggregateSpec], ...]
    user_key: str | None = None
    drop_null_user_keys: bool = False

    def apply(
        self, backend: KeyedStateBackend, events: pa.Table, keys: pa.Array, groups: npt.NDArray[np.int32]
    ) -> None:
        if self.user_key is not None:
            rows = self._rows_with_user_key(events, self.user_key)
            if len(rows) < len(events):
                events, keys, groups = events.take(pa.array(rows)), keys.take(pa.array(rows)), groups[rows]
        columns = [keys] if self.user_key is None else [keys, one_array(events[self.user_key])]
        grouping = group_rows(columns)
        partials = [accumulator_of(spec).partial(events, grouping) for _, spec in self.fields]
        first = grouping.first
        if self._bare:
            kept = valid_rows(partials)
            partials, first = [partials[0].take(pa.array(kept))], first[kept]
        if len(first):
            self._merge(backend, [c.take(pa.array(first)) for c in columns], groups[first], partials)

    def _merge(
        self,
        backend: KeyedStateBackend,
        columns: list[pa.Array],
        groups: npt.NDArray[np.int32],
        partials: list[pa.Array],
    ) -> None:
        descriptor = backend.schema.state(self.state)
        user_keys = columns[1] if len(columns) > 1 else None
        before = backend.read(self.state, encode_keys(backend.schema, descriptor, columns[0], groups, user_keys))
        type_ = value_arrow_type(descriptor)
        stored = [before.values] if self._bare else before.values.flatten()
        merged = [
            accumulator_of(spec).merge(old, partial.cast(old.type)).cast(old.type)
            for (_, spec), old, partial in zip(self.fields, stored, partials, strict=True)
        ]
        values = merged[0] if self._bare else pa.StructArray.from_arrays(merged, fields=list(type_))
        backend.write(before, self.state, values)

    @property
    def _bare(self) -> bool:
        return self.fields[0][0] is None

    def _rows_with_user_key(self, events: pa.Table, column: str) -> npt.NDArray[np.int64]:
        rows = valid_rows([one_array(events[column])])
        if len(rows) < len(events) and not self.drop_null_user_keys:
            raise InvalidRequestError(
                f"state {self.state}: {len(events) - len(rows)} of {len(events)} events have no {column}, "
                "the user key of the map",
                kind="null-user-key",
                hint="set 'on_null_key: drop' in the pipeline file to leave such events out of the map",
            )
        return rows
