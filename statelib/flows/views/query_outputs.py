"""The outputs of a snapshot as tables of a query: the rows that its run emitted, with their numbers."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from statelib.definition.output_forms import OutputForm
from statelib.definition.published_columns import ROW_NUMBER
from statelib.savepoints.emitted_outputs import emitted_rows, outputs_of
from statelib.savepoints.opened import Checkpoint, located

Forms = Mapping[str, OutputForm]
"""The outputs of a pipeline by name; empty if the pipeline of a snapshot is not known."""


def output_tables(opened: Checkpoint, forms: Forms, is_named: Callable[[str], bool]) -> dict[str, pa.Schema]:
    """Return the columns of the outputs: of those with rows that the query names, and of all that have a form."""
    stored = {name: next(numbered_rows(opened, forms, name)).schema for name in outputs_of(opened) if is_named(name)}
    declared = {name: pa.schema([(ROW_NUMBER, pa.int64()), *form.schema]) for name, form in forms.items()}
    return declared | stored


def numbered_rows(opened: Checkpoint, forms: Forms, output: str) -> Iterator[pa.Table]:
    """Yield the rows of an output, each with its number among those of its checkpoint: 1, 2, 3, … Rows that functions
    emitted are as they were stored."""
    form, first = forms.get(output), 1
    for stored in emitted_rows(opened, output):
        with located(opened.directory):
            table = form.flat(stored) if form is not None and form.columns else stored
        numbers = pa.array(np.arange(first, first + len(table), dtype=np.int64))
        yield table.add_column(0, ROW_NUMBER, numbers)
        first += len(table)
