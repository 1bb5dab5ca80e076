"""The rows that the user functions of one subtask emit in a run, for the outputs of its pipeline."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

_ROWS_AT_ONCE = 1 << 16


class EmittedRows:
    """Rows by the name of their output, in the order in which they are emitted. ``schemas``: those of the declared
    outputs."""

    def __init__(self, schemas: Mapping[str, pa.Schema] | None = None) -> None:
        self.schemas = dict(schemas or {})
        self._tables: dict[str, list[pa.Table]] = {name: [] for name in self.schemas}

    def add(self, output: str, rows: pa.Table) -> None:
        """Emit rows, which have the schema of the output."""
        self._tables[output].append(rows)

    def table(self, output: str) -> pa.Table:
        """Return all rows of an output."""
        return pa.concat_tables([self.schemas[output].empty_table(), *self._tables[output]])

    def streams(self) -> Iterator[tuple[str, bytes]]:
        """Yield (output, its rows as an Arrow stream) for each output with rows."""
        for output in self.schemas:
            rows = self.table(output)
            if len(rows):
                sink = pa.BufferOutputStream()
                options = pa.ipc.IpcWriteOptions(compression="zstd")
                with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
                    writer.write_table(rows, max_chunksize=_ROWS_AT_ONCE)
                yield output, bytes(sink.getvalue())
