"""States declared with aggregates: partial accumulators of the batch merged into the stored ones."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.key_order import quick_order
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator import OperatorStateBackend
from statelib.errors import InvalidRequestError
from statelib.functions.accumulators import accumulator_of
from statelib.functions.aggregates import AggregateSpec
from statelib.functions.grouping import group_rows, one_array, valid_rows
from statelib.functions.state_function import Progress
from statelib.model.amounts import number_of
from statelib.model.state import StateDescriptor
from statelib.serializers.keys import encode_keys
from statelib.serializers.values import value_arrow_type
from statelib.wire.ragged import Ragged


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
        self,
        backend: KeyedStateBackend,
        events: pa.Table,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        progress: Progress,  # noqa: ARG002 - state without windows looks at no clock
        *,
        operator: OperatorStateBackend | None = None,  # noqa: ARG002 - aggregates are of keys only
    ) -> int:
        self.merge(backend, events, keys, groups)
        return 0

    def advance(
        self, backend: KeyedStateBackend, progress: Progress, *, operator: OperatorStateBackend | None = None
    ) -> None:
        """Time changes nothing in a state without windows."""

    def merge(
        self,
        backend: KeyedStateBackend,
        events: pa.Table,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        windows: pa.Array | None = None,
    ) -> None:
        """Merge events into what is stored for their keys, or for their keys and ``windows``."""
        if self.user_key is not None:
            rows = self._rows_with_user_key(events, self.user_key)
            if len(rows) < len(events):
                at = pa.array(rows)
                events, keys, groups = events.take(at), keys.take(at), groups[rows]
                windows = None if windows is None else windows.take(at)
        user_keys = None if self.user_key is None else one_array(events[self.user_key])
        grouping = group_rows([column for column in (keys, user_keys, windows) if column is not None])
        if not grouping.size:
            return
        at = pa.array(grouping.first)
        users, spaces = (None if column is None else column.take(at) for column in (user_keys, windows))
        descriptor = backend.schema.state(self.state)
        owners = groups[grouping.first]
        asked = encode_keys(backend.schema, descriptor, keys.take(at), owners, users, namespaces=spaces)
        order = quick_order(asked)
        if order is not None:  # the state lies in this order, or nearly: it is walked through once
            grouping, asked = grouping.ordered(order), asked.take(order)
        partials = [accumulator_of(spec).partial(events, grouping) for _, spec in self.fields]
        if self._bare:
            kept = valid_rows(partials)
            partials, asked = [partials[0].take(pa.array(kept))], asked.take(kept)
        if len(asked):
            self._write(backend, descriptor, asked, partials)

    def _write(
        self, backend: KeyedStateBackend, descriptor: StateDescriptor, keys: Ragged, partials: list[pa.Array]
    ) -> None:
        before = backend.read(self.state, keys)
        type_ = value_arrow_type(descriptor)
        stored = [before.values] if self._bare else before.values.flatten()
        merged = [
            accumulator_of(spec).merge(old, partial.cast(old.type)).cast(old.type)
            for (_, spec), old, partial in zip(self.fields, stored, partials, strict=True)
        ]
        values = merged[0] if self._bare else pa.StructArray.from_arrays(merged, fields=list(type_))
        backend.write(before, self.state, values)

    @property
    def columns(self) -> set[str]:
        """The columns that it reads, besides those of the key."""
        read = {name for _, spec in self.fields for name, _ in spec.columns}
        return read if self.user_key is None else read | {self.user_key}

    @property
    def _bare(self) -> bool:
        return self.fields[0][0] is None

    def _rows_with_user_key(self, events: pa.Table, column: str) -> npt.NDArray[np.int64]:
        rows = valid_rows([one_array(events[column])])
        if len(rows) < len(events) and not self.drop_null_user_keys:
            raise InvalidRequestError(
                f"state {self.state}: {len(events) - len(rows)} of {number_of(len(events), 'event')} have no {column}, "
                "the user key of the map",
                kind="null-user-key",
                hint="set 'on_null_key: drop' in the pipeline file to leave such events out of the map",
            )
        return rows
