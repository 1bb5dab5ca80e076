"""A run of a pipeline in one process, without Spark, storage or Airflow, for tests of pipelines: a test applies events
and compares the state."""

from collections import Counter

import pyarrow as pa

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.side_data import SideData
from statelib.backends.operator.state import OperatorStateBackend
from statelib.backends.wrappers.ttl import plain_values
from statelib.definition.columns import event_schema, key_array, keyed_events
from statelib.definition.output_forms import output_forms, rows_to_emit
from statelib.definition.pipeline import Pipeline
from statelib.functions.change_logs.changes import CHANGE
from statelib.functions.change_logs.deletes import without_deleted
from statelib.functions.interval import apply_interval, expired
from statelib.functions.state_function import Progress
from statelib.functions.user_code.hooks import SnapshotContext, call_hook
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import all_key_groups
from statelib.model.state import StateKind
from statelib.serializers.entries.keys import decode_keys, key_groups
from statelib.serializers.entries.values import decode_values


class LocalRun:
    """One subtask that owns every key group. Its state is in memory unless a ``backend`` is given.

    ``watermark_ms``: the watermark after the intervals applied so far. ``late``: the number of events that came too
    late for their windows, per state with windows. ``without_user_key``: the number of events that a map left out
    because they have no user key, per such map. The hooks are called like in the first run of a pipeline; the hook of
    the snapshot is called at the end of each interval."""

    def __init__(
        self, pipeline: Pipeline, backend: KeyedStateBackend | None = None, watermark_ms: int = -(2**63)
    ) -> None:
        key_group_range = all_key_groups(pipeline.max_parallelism)
        self.pipeline = pipeline
        side_data = map(SideData, pipeline.side_data)
        self._forms = output_forms(pipeline)
        self.operator = OperatorStateBackend(pipeline.operator_descriptors(), side_data, rows_to_emit(pipeline))
        self.backend = backend or HeapKeyedStateBackend(pipeline.schema(), key_group_range)
        self.watermark_ms = watermark_ms
        self.late, self.without_user_key = Counter[str](), Counter[str]()
        self._outputs = {name: [form.stored.empty_table()] for name, form in self._forms.items()}
        self._checkpoints = 0
        self._call_hook("initialize_state", pipeline.hooks.initialize_state)

    def apply(self, events: pa.Table, end_ms: int | None = None, *, draining: bool = False) -> int:
        """Apply the events of one interval that ends at ``end_ms``, and return the number of events that were dropped
        because they have no key. If ``end_ms`` is None, the watermark stays. ``draining``: see :class:`Progress`.

        ``events`` has the declared columns, in any order and with types that can be cast safely. For sources with
        deletes or retractions, it may also have the column :data:`CHANGE`; without it every event is applied."""
        schema = event_schema(self.pipeline)
        if self.pipeline.has_changes and CHANGE not in events.column_names:
            events = events.append_column(CHANGE, pa.nulls(len(events), pa.int8()))
        keyed, dropped = keyed_events(self.pipeline, events.select(schema.names).cast(schema))
        keys = key_array(self.pipeline, keyed)
        groups = key_groups(self.backend.schema, keys)
        after_ms = self.watermark_ms if end_ms is None else max(end_ms - 1, self.watermark_ms)
        progress = Progress(self.watermark_ms, after_ms, draining)
        states = expired(self.backend, self.pipeline.ttl(), progress)
        if self.pipeline.has_deletes:
            retracts, order_by = self.pipeline.has_retractions, self.pipeline.order_by
            keyed, keys, groups = without_deleted(self.backend, keyed, keys, groups, order_by, retracts=retracts)
        result = apply_interval(
            self.pipeline.functions(), states, keyed, keys, groups, progress=progress, operator=self.operator
        )
        self.late.update(dict(result.late))
        self.without_user_key.update(dict(result.without_user_key))
        for output, stream in self.operator.emitted.taken():
            self._outputs[output].append(pa.ipc.open_stream(stream).read_all())
        self.watermark_ms = after_ms
        self._checkpoints += 1
        self._call_hook("snapshot_state", self.pipeline.hooks.snapshot_state)
        return dropped

    def _call_hook(self, name: str, reference: str | None) -> None:
        context = SnapshotContext(CheckpointId(max(self._checkpoints, 1)), False, 0, 1, False, self.watermark_ms)
        call_hook(name, reference, context, self.operator)

    def output(self, name: str) -> pa.Table:
        """Return the rows that the functions have emitted for an output in all intervals so far."""
        return self._forms[name].flat(pa.concat_tables(self._outputs[name]))

    def state(self, name: str) -> dict[object, object]:
        """Return the content of a state as Python values by key. The value of a map state is a dict by user key.

        A key of several columns is a tuple. The key of a state with windows is (key, start, end), with times in epoch
        milliseconds. The key of a timer is (key[, start, end], epoch milliseconds), and its value is True."""
        descriptor = self.backend.schema.state(name)
        values_by_key: dict[object, object] = {}
        for rows in self.backend.scan(name):
            decoded = decode_keys(self.backend.schema, descriptor, rows.keys)
            keys: list[object] = [tuple(k.values()) if isinstance(k, dict) else k for k in decoded.keys.to_pylist()]
            values = plain_values(descriptor, decode_values(descriptor, rows.values)).to_pylist()
            if decoded.namespaces is not None:
                bounds = [bound.cast(pa.int64()).to_pylist() for bound in decoded.namespaces.flatten()]
                keys = list(zip(keys, *bounds, strict=True))
            if decoded.timestamps is not None:
                moments = decoded.timestamps.cast(pa.int64()).to_pylist()
                keys = [(*(k if isinstance(k, tuple) else (k,)), at) for k, at in zip(keys, moments, strict=True)]
                values = [True] * len(keys)
            if descriptor.kind is not StateKind.MAP or decoded.user_keys is None:
                values_by_key.update(zip(keys, values, strict=True))
                continue
            for key, user_key, value in zip(keys, decoded.user_keys.to_pylist(), values, strict=True):
                map_entries = values_by_key.setdefault(key, {})
                assert isinstance(map_entries, dict)
                map_entries[user_key] = value
        return values_by_key
