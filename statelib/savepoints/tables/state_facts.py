"""What is known of the keyed states of a snapshot without reading their entries, as a table."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from statelib.model.checkpoint import OperatorState
from statelib.model.handles import KeyedStateHandle
from statelib.model.state import KeyedStateSchema
from statelib.savepoints.opened import Checkpoint, located
from statelib.savepoints.tables.state_table import group_bytes

COLUMNS = pa.schema(
    [
        ("operator", pa.string()),
        ("operator_id", pa.string()),
        ("parallelism", pa.int32()),
        ("max_parallelism", pa.int32()),
        ("subtask", pa.int32()),
        ("handle", pa.string()),
        ("state", pa.string()),
        ("kind", pa.string()),
        ("key_type", pa.string()),
        ("namespace_type", pa.string()),
        ("user_key_type", pa.string()),
        ("value_type", pa.string()),
        ("key_group", pa.int32()),
        ("entries", pa.int64()),
        ("key_group_bytes", pa.int64()),
    ]
)
"""One row for each operator, state and key group. ``handle``: Flink's name of what the state lies in. ``entries``:
null where nothing recorded them (Flink's own snapshots). ``key_group_bytes``: stored, of all states together; of a
handle whose files hold all key groups at once, an equal share."""


def state_facts(opened: Checkpoint) -> pa.Table:
    """:data:`COLUMNS` of the selected operator, or of all that have keyed state."""
    parts = opened.each_operator() if opened.selected is None else (opened,)
    return pa.concat_tables([COLUMNS.empty_table(), *(table for part in parts for table in _operator(part))])


def _operator(opened: Checkpoint) -> list[pa.Table]:
    operator = opened.keyed_operator()
    with located(f"{opened.directory}: operator {opened.operator_name(operator)}"):
        schema = opened.schema()
    subtasks = [subtask for subtask, state in operator.subtasks if state.keyed is not None]
    handles = zip(subtasks, opened.handles(), strict=True)
    return [_handle(opened, operator, schema, subtask, handle) for subtask, handle in handles]


def _handle(
    opened: Checkpoint, operator: OperatorState, schema: KeyedStateSchema, subtask: int, handle: KeyedStateHandle
) -> pa.Table:
    """The rows of a handle, state after state."""
    recorded = opened.statistics(handle.key_group_range)
    groups, states = len(handle.key_group_range), len(schema.states)
    rows = groups * states
    owned = np.arange(handle.key_group_range.start, handle.key_group_range.end + 1, dtype=np.int32)
    alike = {
        "operator": opened.operator_name(operator),
        "operator_id": operator.operator_id.hex(),
        "parallelism": operator.parallelism,
        "max_parallelism": operator.max_parallelism,
        "subtask": subtask,
        "handle": type(handle).__name__,
        "key_type": str(schema.key_type),
    }
    entries = pa.nulls(rows, pa.int64())
    if recorded is not None and states:
        entries = pa.array(np.concatenate([statistics.entries for statistics in recorded]))
    columns: dict[str, pa.Array] = {
        **{name: pa.repeat(pa.scalar(value, COLUMNS.field(name).type), rows) for name, value in alike.items()},
        "state": _each([s.name for s in schema.states], groups),
        "kind": _each([str(s.kind) for s in schema.states], groups),
        "namespace_type": _each([str(s.namespace_type) for s in schema.states], groups),
        "user_key_type": _each(
            [None if s.user_key_type is None else str(s.user_key_type) for s in schema.states], groups
        ),
        "value_type": _each([str(s.value_type) for s in schema.states], groups),
        "key_group": pa.array(np.tile(owned, states)),
        "entries": entries,
        "key_group_bytes": pa.array(np.tile(group_bytes(handle), states)),
    }
    return pa.table([columns[name] for name in COLUMNS.names], schema=COLUMNS)


def _each(values: Sequence[str | None], times: int) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(np.repeat(np.arange(len(values)), times)))
