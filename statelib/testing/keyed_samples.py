"""A small schema with one state of each common kind, and functions that fill and read a backend."""

import weakref
from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import DOUBLE, LONG, STRING, Field, Row
from statelib.serializers.entries.keys import encode_keys, key_groups
from statelib.serializers.entries.rows import StateRows, join_rows
from statelib.serializers.entries.values import value_arrow_type
from statelib.wire.ragged import Ragged

TOTALS = StateDescriptor("totals", StateKind.VALUE, Row((Field("count", LONG), Field("last", STRING))))
MEANS = StateDescriptor("means", StateKind.REDUCING, DOUBLE)
VISITS = StateDescriptor("visits", StateKind.LIST, LONG)
PER_PLACE = StateDescriptor("per_place", StateKind.MAP, LONG, STRING)


def sample_schema(max_parallelism: int = 128) -> KeyedStateSchema:
    """Return a schema with string keys and four states: a value, a reducing, a list and a map state."""
    return KeyedStateSchema(STRING, max_parallelism, (TOTALS, MEANS, VISITS, PER_PLACE))


def serialized(
    schema: KeyedStateSchema, state: str, keys: Sequence[str], user_keys: Sequence[str] | None = None
) -> Ragged:
    """Return the serialized composite keys of a sample state, one per key."""
    column = pa.array(keys, pa.string())
    groups = key_groups(schema, column)
    users = None if user_keys is None else pa.array(user_keys, pa.string())
    return encode_keys(schema, schema.state(state), column, groups, users)


def owned(schema: KeyedStateSchema, keys: Sequence[str], key_group_range: KeyGroupRange) -> list[str]:
    """Return the keys that lie in the key-group range."""
    groups = key_groups(schema, pa.array(keys, pa.string()))
    return [key for key, group in zip(keys, groups.tolist(), strict=True) if group in key_group_range]


def put(
    backend: KeyedStateBackend,
    state: str,
    keys: Sequence[str],
    values: Sequence[object],
    user_keys: Sequence[str] | None = None,
) -> None:
    """Read the entries of the keys, then write ``values[i]`` for ``keys[i]``. The value None removes the key."""
    rows = serialized(backend.schema, state, keys, user_keys)
    column = pa.array(values, value_arrow_type(backend.schema.state(state)))
    backend.write(backend.read(state, rows), state, column, column.is_null())


def put_and_reuse(
    backend: KeyedStateBackend,
    state: str,
    keys: Sequence[str],
    values: Sequence[object],
    user_keys: Sequence[str] | None = None,
) -> list[Callable[[], object]]:
    """Write as :func:`put` does, rows that are a slice of memory which is overwritten right afterwards. Return weak
    references to that memory."""
    rows = serialized(backend.schema, state, [keys[0], *keys, keys[-1]], user_keys and [user_keys[0], *user_keys, ""])
    data, offsets = rows.data.copy(), rows.offsets.copy()
    column = pa.array([None, *values, None], value_arrow_type(backend.schema.state(state)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([("values", column.type), ("removed", pa.bool_())])) as writer:
        writer.write(pa.record_batch([column, column.is_null()], ["values", "removed"]))
    memory = np.frombuffer(sink.getvalue(), np.uint8).copy()
    batch = pa.ipc.open_stream(pa.py_buffer(memory)).read_next_batch().slice(1, len(keys))
    backend.write(backend.read(state, Ragged(data, offsets).slice(1, 1 + len(keys))), state, *batch.columns)
    for reused in (data, offsets, memory):
        reused.fill(0)
    return [weakref.ref(freed) for freed in (data, offsets, memory)]


def got(
    backend: KeyedStateBackend, state: str, keys: Sequence[str], user_keys: Sequence[str] | None = None
) -> list[object]:
    """Return one value per key, None for a key without an entry."""
    values = backend.read(state, serialized(backend.schema, state, keys, user_keys))
    assert values.values.is_valid().to_pylist() == values.present.to_pylist() or state == PER_PLACE.name
    return list(values.values.to_pylist())


def fill(backend: KeyedStateBackend, count: int = 300) -> None:
    """Write entries into every state. Of ``count`` keys, only those that the backend owns are written."""
    keys = owned(backend.schema, [f"key-{i}" for i in range(count)], backend.key_group_range)
    put(backend, "totals", keys, [{"count": i, "last": f"at {i}" if i % 3 else None} for i in range(len(keys))])
    put(backend, "means", keys, [i / 7 for i in range(len(keys))])
    put(backend, "visits", keys, [[i] * (i % 4 + 1) for i in range(len(keys))])
    for place in ("ATL", "JFK"):
        put(backend, "per_place", keys, list(range(len(keys))), [place] * len(keys))


def entries(backend: KeyedStateBackend, state: str) -> dict[bytes, bytes]:
    """Return all entries of a state as bytes, read by a scan, and assert that no key occurs twice."""
    rows = scanned(backend, state)
    keys = rows.keys.to_list()
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, rows.values.to_list(), strict=True))


def all_entries(backend: KeyedStateBackend) -> dict[str, dict[bytes, bytes]]:
    return {d.name: entries(backend, d.name) for d in backend.schema.states}


def scanned(backend: KeyedStateBackend, state: str) -> StateRows:
    """Return all rows of a scan as one batch."""
    batches = list(backend.scan(state))
    return join_rows(batches)
