"""The outputs of a snapshot as tables of a query: the rows that its run emitted, with their numbers."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from statelib.definition.published_columns import ROW_NUMBER
from statelib.savepoints.emitted_outputs import emitted_rows, outputs_of
from statelib.savepoints.opened import Checkpoint


def output_tables(
    opened: Checkpoint, declared: Mapping[str, pa.Schema], is_named: Callable[[str], bool]
) -> dict[str, pa.Schema]:
    """Return the columns of the outputs: of those with rows that the query names, and of all that are ``declared``."""
    stored = {name: next(numbered_rows(opened, name)).schema for name in outputs_of(opened) if is_named(name)}
    numbered = {name: pa.schema([(ROW_NUMBER, pa.int64()), *schema]) for name, schema in declared.items()}
    return numbered | stored


def numbered_rows(opened: Checkpoint, output: str) -> Iterator[pa.Table]:
    """Yield the rows of an output, each with its number among those of its checkpoint: 1, 2, 3, …"""
    first = 1
    for table in emitted_rows(opened, output):
        numbers = pa.array(np.arange(first, first + len(table), dtype=np.int64))
        yield table.add_column(0, ROW_NUMBER, numbers)
        first += len(table)
