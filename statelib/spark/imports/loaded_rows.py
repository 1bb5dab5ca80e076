"""The loading of rows from elsewhere into the live state of a subtask, one entry per row."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.keys.order import byte_order
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import encode_values
from statelib.wire.ragged import as_arrow

_ROWS_AT_ONCE = 1 << 18
"""The most rows that are in memory as entries of RocksDB's own kind."""


def load_rows(
    backend: KeyedStateBackend,
    state: str,
    keys: pa.Array,
    values: pa.Array,
    user_keys: pa.Array | None = None,
    *,
    timed: bool = False,
) -> pa.Array:
    """Put one entry per row into a state that is empty. Return the keys that are equal to the key of an earlier row; if
    there are any, nothing is put. ``timed``: the backend adds times to the values of this state."""
    schema, descriptor = backend.schema, backend.schema.state(state)
    encoded = encode_keys(schema, descriptor, keys, key_groups(schema, keys), user_keys)
    order = byte_order(encoded)
    ordered = encoded.take(order)
    column = as_arrow(ordered)
    repeats = np.flatnonzero(pc.equal(column[1:], column[:-1]).to_numpy(zero_copy_only=False))
    for start in range(0, 0 if len(repeats) else len(order), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        batch = values.take(pa.array(order[rows]))
        batch_keys = ordered.slice(start, start + len(batch))
        if timed:
            backend.write(backend.read(state, batch_keys), state, batch)
        else:
            backend.load(state, StateRows(batch_keys, encode_values(descriptor, batch)))
    return keys.take(pa.array(order[repeats]))
