"""The changes of a state from the base of a checkpoint, as its run recorded them for published tables.

They are side data of the checkpoint, per subtask, under a name that no pipeline can declare. No run restores them.
"""

from collections.abc import Iterator

import pyarrow as pa

from statelib.backends.wrappers.changed_entries import changes_schema
from statelib.errors import CorruptStateError
from statelib.formats.manifest.trailer import OWN_STATE_PREFIX
from statelib.model.checkpoint import SideDataRecord
from statelib.savepoints.opened import Checkpoint
from statelib.serializers.entries.keys import KEY_COLUMNS, key_columns
from statelib.wire.ragged import as_ragged

_PREFIX = f"{OWN_STATE_PREFIX}changes."


def changes_name(state: str) -> str:
    """Return the name of the side data that holds the changes of a state."""
    return f"{_PREFIX}{state}"


def recorded_changes(opened: Checkpoint, state: str) -> Iterator[pa.Table] | None:
    """Return an iterator over the changes of a state from the checkpoint's base: the columns of the key, ``change`` (of
    :mod:`statelib.backends.wrappers.changed_entries`) and ``value``, which is null in a deleted entry. Return None if
    they were not recorded for all key groups.

    The iterator raises as :func:`read_changes`."""
    records = records_of_changes(opened, state)
    return None if records is None else _tables(opened, state, records)


def records_of_changes(opened: Checkpoint, state: str) -> list[SideDataRecord] | None:
    """Return the records of the changes of a state, in the order of their key groups. Return None if they were not
    recorded for all key groups."""
    stored = opened.manifest.side_data if opened.manifest else ()
    records = sorted(
        (record for record in stored if record.name == changes_name(state)),
        key=lambda record: record.key_group_range.start,
    )
    groups = [group for record in records for group in record.key_group_range]
    return records if groups == list(range(opened.schema().max_parallelism)) else None


def read_changes(opened: Checkpoint, state: str, record: SideDataRecord) -> Iterator[pa.RecordBatch]:
    """Yield changes with the columns ``key`` (serialized), ``change`` and ``value``.

    Raises as the reader of the checkpoint, and CorruptStateError (``bad-changes``)."""
    expected = changes_schema(opened.schema().state(state))
    with pa.ipc.open_stream(pa.py_buffer(opened.reader().read(record.handle))) as stream:
        if stream.schema != expected:
            raise CorruptStateError(
                f"{opened.directory}: changes of state {state!r}: expected the columns {expected.types}, "
                f"found {stream.schema.types}",
                kind="bad-changes",
            )
        yield from stream


def _tables(opened: Checkpoint, state: str, records: list[SideDataRecord]) -> Iterator[pa.Table]:
    schema = opened.schema()
    descriptor = schema.state(state)
    for record in records:
        for batch in read_changes(opened, state, record):
            columns = key_columns(schema, descriptor, as_ragged(batch["key"]), KEY_COLUMNS)
            yield pa.table({**columns, "change": batch["change"], "value": batch["value"]})
