"""The rows that the user functions of a run emitted for its outputs, as its checkpoint holds them.

They are side data of the checkpoint, per subtask, under a name that no pipeline can declare. No run restores them.
"""

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from statelib.errors import CorruptStateError
from statelib.formats.manifest.trailer import OWN_STATE_PREFIX
from statelib.model.checkpoint import CheckpointManifest, SideDataRecord
from statelib.model.handles import ByteStreamStateHandle
from statelib.savepoints.opened import Checkpoint, located
from statelib.savepoints.tables.gathering import gathered

_PREFIX = f"{OWN_STATE_PREFIX}output."


def output_name(output: str) -> str:
    """Return the name of the side data that holds the rows of an output."""
    return f"{_PREFIX}{output}"


def outputs_of(opened: Checkpoint) -> tuple[str, ...]:
    """Return the outputs for which the run of a checkpoint emitted rows, sorted by name."""
    return tuple(sorted({record.name.removeprefix(_PREFIX) for record in _records(opened.manifest)}))


def emitted_rows(opened: Checkpoint, output: str) -> Iterator[pa.Table]:
    """Yield the rows of an output, in the order of subtasks, and of emission within each. The order never changes, so
    that a number identifies a row.

    Raises as the reader of the checkpoint, and CorruptStateError (``bad-output``)."""
    records = [record for record in _records(opened.manifest) if record.name == output_name(output)]
    with located(f"{opened.directory}: output {output}"):
        for record in sorted(records, key=lambda record: record.key_group_range.start):
            data = pa.py_buffer(opened.reader().read(record.handle))
            try:
                with pa.ipc.open_stream(data) as stream:
                    # A function that is called for each timer may have emitted many batches of a few rows.
                    yield from gathered(pa.Table.from_batches([batch]) for batch in stream)
            except (pa.ArrowInvalid, OSError) as error:
                raise CorruptStateError(f"not an Arrow stream: {error}", kind="bad-output") from error


def without_outputs(opened: Checkpoint) -> Checkpoint:
    """Return the checkpoint without the rows of outputs, for another pipeline that continues its state."""
    manifest, records = opened.manifest, _records(opened.manifest)
    if manifest is None or not records:
        return opened
    handles = (record.handle for record in records)
    paths = {handle.path for handle in handles if not isinstance(handle, ByteStreamStateHandle)}
    without = replace(
        manifest,
        side_data=tuple(record for record in manifest.side_data if record not in records),
        files=tuple(file for file in manifest.files if file.path not in paths),
    )
    return replace(opened, manifest=without)


def _records(manifest: CheckpointManifest | None) -> list[SideDataRecord]:
    return [record for record in manifest.side_data if record.name.startswith(_PREFIX)] if manifest else []
