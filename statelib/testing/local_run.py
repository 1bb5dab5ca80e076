"""A pipeline without Spark, storage and Airflow: give it events, look at its state. For tests of pipelines."""

import pyarrow as pa

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.definition.columns import event_schema, key_array, keyed_events
from statelib.definition.pipeline import Pipeline
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateKind
from statelib.serializers.keys import decode_keys, key_groups
from statelib.serializers.values import decode_values


class LocalRun:
    """One subtask that owns every key group, its state in memory unless a ``backend`` is given."""

    def __init__(self, pipeline: Pipeline, backend: KeyedStateBackend | None = None) -> None:
        everything = KeyGroupRange(0, pipeline.max_parallelism - 1)
        self.pipeline = pipeline
        self.backend = backend or HeapKeyedStateBackend(pipeline.schema(), everything)

    def apply(self, events: pa.Table) -> int:
        """Apply the events of one interval; returns how many were dropped for want of a key.

        ``events`` has the declared columns, in any order and with types that can be cast safely."""
        schema = event_schema(self.pipeline)
        keyed, dropped = keyed_events(self.pipeline, events.select(schema.names).cast(schema))
        keys = key_array(self.pipeline, keyed)
        groups = key_groups(self.backend.schema, keys)
        for function in self.pipeline.functions():
            function.apply(self.backend, keyed, keys, groups)
        return dropped

    def state(self, name: str) -> dict[object, object]:
        """What a state holds, as Python values by key; for a map state a dict by user key within.
        A key of several columns is a tuple."""
        descriptor = self.backend.schema.state(name)
        found: dict[object, object] = {}
        for rows in self.backend.scan(name):
            decoded = decode_keys(self.backend.schema, descriptor, rows.keys)
            keys = [tuple(k.values()) if isinstance(k, dict) else k for k in decoded.keys.to_pylist()]
            values = decode_values(descriptor, rows.values).to_pylist()
            if descriptor.kind is not StateKind.MAP or decoded.user_keys is None:
                found.update(zip(keys, values, strict=True))
                continue
            for key, user_key, value in zip(keys, decoded.user_keys.to_pylist(), values, strict=True):
                inner = found.setdefault(key, {})
                assert isinstance(inner, dict)
                inner[user_key] = value
        return found
