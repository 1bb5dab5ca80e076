"""A keyed backend that records which entries of some states are changed through it, for published tables.

Only keys are held, so the cost grows with the changed entries. Their values are read once, after the last write.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.entries import removed_rows
from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.backends.wrappers.ttl import plain_values
from statelib.backends.wrappers.wrapped import WrappedBackend
from statelib.model.state import StateDescriptor
from statelib.model.types import Ttl
from statelib.serializers.entries.values import encode_values, value_arrow_type
from statelib.wire.ragged import as_arrow, as_ragged

INSERTED, UPDATED, DELETED = 0, 1, 2
"""The values of the column ``change``."""
LIMIT_BYTES = 64 << 20
"""The most bytes of changed keys per state, and of recorded changes, in one subtask. More of them are not recorded."""
_PENDING_BYTES = 4 << 20
"""The least bytes of keys that are gathered before the rows of equal keys are merged."""
_ROWS_AT_ONCE = 1 << 16
_Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Touched:
    """Written entries, one row per key. ``existed``: whether the entry existed before its first write. ``differs``:
    whether a write changed more than the time of its last access."""

    keys: pa.LargeBinaryArray
    existed: _Mask
    differs: _Mask


_NOTHING = _Touched(pa.nulls(0, pa.large_binary()), np.empty(0, np.bool_), np.empty(0, np.bool_))


class ChangedEntries(WrappedBackend):
    """A :class:`~statelib.backends.keyed.KeyedStateBackend` that passes all calls to ``inner``, and records the entries
    of ``states`` that are written. All writes to ``inner`` must go through it."""

    def __init__(self, inner: KeyedStateBackend, states: Collection[str]) -> None:
        super().__init__(inner)
        self._touched = dict.fromkeys(states, _NOTHING)
        self._pending: dict[str, list[_Touched]] = {state: [] for state in states}

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        self.inner.write(before, state, values, removed)
        if state not in self._touched or not len(before.keys):
            return
        descriptor = self.schema.state(state)
        existed = np.asarray(before.present.to_numpy(zero_copy_only=False), np.bool_)
        both = np.flatnonzero(existed & ~removed_rows(descriptor, values, removed))
        differs = np.ones(len(existed), np.bool_)
        differs[both] = unequal_values(descriptor, before.values.take(both), values.take(both))
        pending = self._pending[state]
        pending.append(_Touched(as_arrow(before.keys), existed, differs))
        if sum(part.keys.nbytes for part in pending) > max(_PENDING_BYTES, self._touched[state].keys.nbytes):
            self._merge(state)

    def recorded(self) -> Iterator[tuple[str, bytes]]:
        """Yield (state, its changes as an Arrow stream with the columns ``key``, ``change`` and ``value``). A state
        with more than :data:`LIMIT_BYTES` is left out."""
        for state in list(self._touched):
            self._merge(state)
            if state in self._touched:
                stream = self._encoded(state, self._touched[state])
                if stream is not None:
                    yield state, stream

    def _encoded(self, state: str, touched: _Touched) -> bytes | None:
        schema = changes_schema(self.schema.state(state))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            for start in range(0, len(touched.keys), _ROWS_AT_ONCE):
                rows = slice(start, start + _ROWS_AT_ONCE)
                keys, existed = touched.keys[rows], touched.existed[rows]
                after = self.inner.read(state, as_ragged(keys))
                exists = np.asarray(after.present.to_numpy(zero_copy_only=False), np.bool_)
                kinds = np.where(exists, np.where(existed, UPDATED, INSERTED), DELETED).astype(np.int8)
                changed = pa.array(np.where(existed & exists, touched.differs[rows], existed | exists))
                batch = pa.record_batch([keys, pa.array(kinds), after.values], schema=schema)
                writer.write_batch(batch.filter(changed))
                if sink.tell() > LIMIT_BYTES:
                    return None
        return bytes(sink.getvalue())

    def _merge(self, state: str) -> None:
        merged = _merged([self._touched[state], *self._pending[state]])
        self._touched[state], self._pending[state] = merged, []
        if merged.keys.nbytes > LIMIT_BYTES:
            del self._touched[state], self._pending[state]


def changes_schema(descriptor: StateDescriptor) -> pa.Schema:
    """Return the schema of the recorded changes of a state."""
    value = value_arrow_type(descriptor)
    return pa.schema([("key", pa.large_binary()), ("change", pa.int8()), ("value", value)])


def unequal_values(descriptor: StateDescriptor, old: pa.Array, new: pa.Array) -> _Mask:
    """Return whether values differ in more than the time of their last access, per row."""
    if not len(old):
        return np.empty(0, np.bool_)
    timed = descriptor.value_type
    plain = replace(descriptor, value_type=timed.value) if isinstance(timed, Ttl) else descriptor
    values = [as_arrow(encode_values(plain, plain_values(descriptor, side))) for side in (old, new)]
    return np.asarray(pc.not_equal(*values).to_numpy(zero_copy_only=False), np.bool_)


def _merged(parts: list[_Touched]) -> _Touched:
    """Return one row per key. ``parts``: in the order of time."""
    parts = [part for part in parts if len(part.keys)]
    if len(parts) <= 1:
        return parts[0] if parts else _NOTHING
    coded = pa.chunked_array([part.keys for part in parts]).combine_chunks().dictionary_encode()
    codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
    _, first = np.unique(codes, return_index=True)
    differs = np.zeros(len(first), np.bool_)
    differs[codes[np.concatenate([part.differs for part in parts])]] = True
    return _Touched(coded.dictionary, np.concatenate([part.existed for part in parts])[first], differs)
