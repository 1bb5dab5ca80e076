"""The rows that the user functions of one subtask emit in a run, for the outputs of its pipeline."""

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

_ROWS_AT_ONCE = 1 << 16


class EmittedRows:
    """Rows by the name of their output, in the order in which they are emitted. They are held as compressed Arrow
    streams. ``schemas``: those of all outputs. ``closed``: the outputs of closed windows, to which no user function
    emits."""

    def __init__(self, schemas: Mapping[str, pa.Schema] | None = None, closed: Collection[str] = ()) -> None:
        self.schemas = dict(schemas or {})
        self.of_functions = {name: schema for name, schema in self.schemas.items() if name not in closed}
        self._streams: dict[str, tuple[pa.BufferOutputStream, pa.ipc.RecordBatchStreamWriter]] = {}

    def add(self, output: str, rows: pa.Table) -> None:
        """Emit rows, which have the schema of the output."""
        if not len(rows):
            return
        if output not in self._streams:
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            self._streams[output] = sink, pa.ipc.new_stream(sink, self.schemas[output], options=options)
        self._streams[output][1].write_table(rows, max_chunksize=_ROWS_AT_ONCE)

    def taken(self) -> Iterator[tuple[str, bytes]]:
        """Yield (output, its rows as an Arrow stream) for each output with rows, in the order of the declaration. The
        rows are then no longer held."""
        for output in self.schemas:
            if output in self._streams:
                sink, writer = self._streams.pop(output)
                writer.close()
                yield output, bytes(sink.getvalue())
