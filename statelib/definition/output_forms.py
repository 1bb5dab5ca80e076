"""The rows of the outputs of a pipeline: as a checkpoint holds them, and as tables show them."""

from dataclasses import dataclass

import pyarrow as pa

from statelib.aggregates.grouping import one_array
from statelib.backends.operator.emitted_rows import EmittedRows
from statelib.definition.frame_columns import FrameColumn
from statelib.definition.framed_state import framed
from statelib.definition.parts.model import OutputDefinition
from statelib.definition.parts.types import type_of
from statelib.definition.pipeline import Pipeline
from statelib.definition.published_columns import closed_columns
from statelib.errors import InvalidRequestError
from statelib.model.types import TIME_WINDOW
from statelib.serializers.entries.values import value_arrow_type
from statelib.serializers.registry import codec_of


@dataclass(frozen=True)
class OutputForm:
    """The form of an output. ``stored``: the columns of its rows in a checkpoint. ``columns``: how tables show closed
    windows; empty if functions emit the rows, which are shown as they are."""

    output: str
    stored: pa.Schema
    columns: tuple[FrameColumn, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows as tables show them."""
        return self.flat(self.stored.empty_table()).schema

    def flat(self, rows: pa.Table) -> pa.Table:
        """Return rows of a checkpoint as tables show them. A column that they do not have is null, and a column that
        the output does not have is left out. This also applies to the fields of a state whose windows were closed.

        Raises InvalidRequestError (``other-output``)."""
        try:
            whole = pa.table([_column(rows, field) for field in self.stored], schema=self.stored)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            types = ", ".join(f"{field.name}: {field.type}" for field in rows.schema)
            raise InvalidRequestError(
                f"output {self.output}: {error}: the checkpoint has the columns {types}",
                kind="other-output",
                hint=f"declare the types of earlier rows of outputs.{self.output} again, or choose a new name for the "
                "column or the output that has another type now",
            ) from error
        return framed(whole, self.columns) if self.columns else whole


def rows_to_emit(pipeline: Pipeline) -> EmittedRows:
    """Return the empty rows of the outputs, for a run of one subtask."""
    stored = {name: form.stored for name, form in output_forms(pipeline).items()}
    return EmittedRows(stored, [name for name, output in pipeline.outputs.items() if output.closed is not None])


def output_forms(pipeline: Pipeline) -> dict[str, OutputForm]:
    """Return the form of each output, by its name."""
    return {name: _form(pipeline, name, output) for name, output in pipeline.outputs.items()}


def _form(pipeline: Pipeline, name: str, output: OutputDefinition) -> OutputForm:
    if output.closed is None:
        columns = [(column, codec_of(type_of(text)).arrow_type) for column, text in output.columns.items()]
        return OutputForm(name, pa.schema(columns))
    state = pipeline.schema().state(output.closed)
    stored = {
        "key": codec_of(pipeline.key_type()).arrow_type,
        "namespace": codec_of(TIME_WINDOW).arrow_type,
        "value": value_arrow_type(state),
    }
    return OutputForm(name, pa.schema(list(stored.items())), closed_columns(pipeline, output.closed))


def _column(rows: pa.Table, field: pa.Field) -> pa.Array:
    """Return a column in the declared type. A column, or a field of a row, that the rows do not have is null."""
    if field.name not in rows.column_names:
        return pa.nulls(len(rows), field.type)
    values = one_array(rows[field.name])
    if not (pa.types.is_struct(values.type) and pa.types.is_struct(field.type)):
        return values.cast(field.type)
    fields = pa.table(values.flatten(), names=[each.name for each in values.type])
    parts = [_column(fields, each) for each in field.type]
    return pa.StructArray.from_arrays(parts, fields=list(field.type), mask=values.is_null())
