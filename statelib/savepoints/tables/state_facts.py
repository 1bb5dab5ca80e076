"""A table of facts about the keyed states of a snapshot, made without reading their entries."""

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
"""The columns of the table, which has one row per operator, state and key group.

``handle``: Flink's class name of the handle that holds the state. ``entries``: the recorded number of entries; null for
a snapshot that Flink wrote. ``key_group_bytes``: the stored bytes of the key group, of all states together. If the
files of a handle hold all its key groups together, each key group has an equal share."""


def state_facts(opened: Checkpoint) -> pa.Table:
    """Return a table with the columns :data:`COLUMNS` for the selected operator, or, if none is selected, for all
    operators with keyed state. Raises what reading the schema of a snapshot raises, such as UnsupportedError."""
    parts = opened.each_operator() if opened.selected is None else (opened,)
    return pa.concat_tables([COLUMNS.empty_table(), *(table for part in parts for table in _operator_tables(part))])


def _operator_tables(opened: Checkpoint) -> list[pa.Table]:
    operator = opened.keyed_operator()
    with located(f"{opened.directory}: operator {opened.operator_name(operator)}"):
        schema = opened.schema()
    subtasks = [subtask for subtask, state in operator.subtasks if state.keyed is not None]
    handles = zip(subtasks, opened.handles(), strict=True)
    return [_handle_table(opened, operator, schema, subtask, handle) for subtask, handle in handles]


def _handle_table(
    opened: Checkpoint, operator: OperatorState, schema: KeyedStateSchema, subtask: int, handle: KeyedStateHandle
) -> pa.Table:
    """Return the rows of a handle: those of its first state, then those of the next one."""
    recorded = opened.statistics(handle.key_group_range)
    groups, states = len(handle.key_group_range), len(schema.states)
    rows = groups * states
    owned = np.arange(handle.key_group_range.start, handle.key_group_range.end + 1, dtype=np.int32)
    constants = {
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
        **{name: pa.repeat(pa.scalar(value, COLUMNS.field(name).type), rows) for name, value in constants.items()},
        "state": _repeated([s.name for s in schema.states], groups),
        "kind": _repeated([str(s.kind) for s in schema.states], groups),
        "namespace_type": _repeated([str(s.namespace_type) for s in schema.states], groups),
        "user_key_type": _repeated(
            [None if s.user_key_type is None else str(s.user_key_type) for s in schema.states], groups
        ),
        "value_type": _repeated([str(s.value_type) for s in schema.states], groups),
        "key_group": pa.array(np.tile(owned, states)),
        "entries": entries,
        "key_group_bytes": pa.array(np.tile(group_bytes(handle), states)),
    }
    return pa.table([columns[name] for name in COLUMNS.names], schema=COLUMNS)


def _repeated(values: Sequence[str | None], times: int) -> pa.Array:
    """Return an array in which each value is repeated ``times`` times before the next one."""
    return pa.array(values, pa.string()).take(pa.array(np.repeat(np.arange(len(values)), times)))
