"""Many small tables as fewer large ones."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

_BYTES = 16 << 20
"""The least bytes of a gathered table."""


def gathered(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of tables with the same columns in tables of bounded size, each of one chunk. Whoever handles
    tables one by one spends some milliseconds on each."""
    pending: list[pa.Table] = []
    size = 0
    for part in parts:
        pending.append(part)
        size += part.nbytes
        if size >= _BYTES:
            yield pa.concat_tables(pending).combine_chunks()
            pending, size = [], 0
    if pending:
        yield pa.concat_tables(pending).combine_chunks()
