"""The columns of a published table: those of the state's flat table, chosen and renamed by the pipeline file."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from statelib.definition.declared import DeclaredPipeline
from statelib.definition.frame_columns import FrameColumn, frame_columns
from statelib.definition.parts.publish import Publication
from statelib.model.state import StateDescriptor
from statelib.model.types import Ttl

OF_CHANGES = ("commit", "checkpoint_id", "interval_start", "interval_end", "change")
"""The columns that a feed of changes has before the columns of the state."""
ROW_NUMBER = "row_number"
"""The column of an output with the number of a row among those of its checkpoint: 1, 2, 3, …"""


def published_state(pipeline: DeclaredPipeline, publication: Publication) -> StateDescriptor:
    """Return the state that is published, without the times of accesses that a time to live stores beside values."""
    state = pipeline.schema().state(publication.state or next(iter(pipeline.states)))
    return replace(state, value_type=state.value_type.value) if isinstance(state.value_type, Ttl) else state


def output_columns(pipeline: DeclaredPipeline, publication: Publication) -> dict[str, str]:
    """Return the columns of a published output: its own names by the names that they are published under."""
    assert publication.output is not None, "a state is published in another way"
    return publication.columns or {name: name for name in output_names(pipeline, publication.output)}


def output_names(pipeline: DeclaredPipeline, output: str) -> tuple[str, ...]:
    """Return the names of the columns of an output."""
    definition = pipeline.outputs[output]
    if definition.closed is None:
        return tuple(definition.columns)
    return tuple(column.name for column in closed_columns(pipeline, definition.closed))


def closed_columns(pipeline: DeclaredPipeline, state: str) -> tuple[FrameColumn, ...]:
    """Return the columns of the closed windows of a state, which are those of its published table."""
    return published_columns(pipeline, Publication(target="", mode="changes", state=state))


def state_columns(pipeline: DeclaredPipeline, publication: Publication) -> dict[str, FrameColumn]:
    """Return all columns of the published state by name."""
    state = published_state(pipeline, publication)
    return {column.name: column for column in frame_columns(pipeline.key, pipeline.key_type(), state)}


def published_columns(pipeline: DeclaredPipeline, publication: Publication) -> tuple[FrameColumn, ...]:
    """Return the columns of the published table, under their published names: those that identify a row, then the
    chosen ones."""
    columns = state_columns(pipeline, publication)
    return tuple(
        replace(columns[source], name=name) for name, source in _published_names(pipeline, publication).items()
    )


def _published_names(pipeline: DeclaredPipeline, publication: Publication) -> dict[str, str]:
    """Return the columns of the state that are published, by their published names."""
    columns = state_columns(pipeline, publication)
    chosen = chosen_names(columns, publication)
    if publication.columns:
        return chosen
    state = published_state(pipeline, publication)
    return {
        name: source
        for name, source in chosen.items()
        if columns[source].is_key or not _is_part_of_result(source, columns, state)
    }


def column_sources(pipeline: DeclaredPipeline, publication: Publication) -> dict[str, tuple[str, ...]]:
    """Return the names of what each column of a published table has the values of: the present name, then those with
    earlier names of the state and the field. A column of the key has its position, because a key has no names."""
    names: Mapping[str, str] = {}
    if publication.output is not None:
        names, closed = output_columns(pipeline, publication), pipeline.outputs[publication.output].closed
        if closed is None:
            return {name: (f"{publication.output}.{source}",) for name, source in names.items()}
        publication = Publication(target="", mode="changes", state=closed)
    columns = state_columns(pipeline, publication)
    names = names or _published_names(pipeline, publication)
    return {name: tuple(_sources(pipeline, publication, columns[source])) for name, source in names.items()}


def _sources(pipeline: DeclaredPipeline, publication: Publication, column: FrameColumn) -> Iterator[str]:
    """Yield ``<state>.<column>`` with the present and the earlier names of the state and of the field in the column's
    name; for a column of the key its position."""
    if column.is_key:
        yield ".".join((column.source, *map(str, column.path)))
        return
    name = publication.state or next(iter(pipeline.states))
    state = pipeline.states[name]
    plain = column.name
    if state.fields and not any(_has_field(column.name, field) for field in state.fields):
        plain = column.name.removeprefix("value.")  # a column of the key has the field's name
    field = max((field for field in state.fields if _has_field(plain, field)), key=len, default="")
    earlier = state.fields[field].renamed_from if field else ()
    for state_name in (name, *state.renamed_from):
        for field_name in (field, *earlier):
            yield f"{state_name}.{field_name}{plain.removeprefix(field)}"


def _has_field(column: str, field: str) -> bool:
    """Return whether a column holds a field of a state, or a part of the field."""
    return column == field or column.startswith(f"{field}.")


def _is_part_of_result(name: str, columns: Mapping[str, FrameColumn], state: StateDescriptor) -> bool:
    """Return whether a column holds what an aggregate keeps beside its value, such as the sum of an average."""
    aggregates = {meaning.field or "value" for meaning in state.meanings if meaning.agg}
    aggregates |= {f"value.{field}" for field in aggregates}
    results = [other for other in columns if other in aggregates and name.startswith(f"{other}.")]
    return bool(results) and name not in aggregates


def chosen_names(columns: Mapping[str, FrameColumn], publication: Publication) -> dict[str, str]:
    """Return the state's columns that may be published, by their published names. Columns that identify a row are
    always published, and come first."""
    renamed = {source: name for name, source in publication.columns.items()}
    keys = {renamed.get(name, name): name for name, column in columns.items() if column.is_key}
    others = publication.columns or {name: name for name, column in columns.items() if not column.is_key}
    return keys | {name: source for name, source in others.items() if not columns[source].is_key}
