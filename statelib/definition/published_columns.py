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
    chosen = chosen_names(columns, publication)
    if not publication.columns:
        state = published_state(pipeline, publication)
        chosen = {name: source for name, source in chosen.items() if not _is_part_of_result(source, columns, state)}
    return tuple(replace(columns[source], name=name) for name, source in chosen.items())


def column_sources(pipeline: DeclaredPipeline, publication: Publication) -> dict[str, tuple[str, ...]]:
    """Return the names of what each column of a published table has the values of: the present name, then those with
    earlier names of the state and the field. A column of the key has its position, because a key has no names."""
    if publication.output is not None:
        names = output_columns(pipeline, publication)
        return {name: (f"{publication.output}.{source}",) for name, source in names.items()}
    columns = state_columns(pipeline, publication)
    return {
        name: tuple(_value_sources(pipeline, publication, source))
        if not (column := columns[source]).is_key
        else (".".join((column.source, *map(str, column.path))),)
        for name, source in chosen_names(columns, publication).items()
    }


def _value_sources(pipeline: DeclaredPipeline, publication: Publication, column: str) -> Iterator[str]:
    """Yield ``<state>.<column>`` with the present and the earlier names of the state and of the field in ``column``."""
    name = publication.state or next(iter(pipeline.states))
    state = pipeline.states[name]
    plain = column if column.partition(".")[0] in state.fields else column.removeprefix("value.")
    field, dot, part = plain.partition(".") if state.fields else ("", "", column)
    earlier = state.fields[field].renamed_from if field else ()
    for state_name in (name, *state.renamed_from):
        for field_name in (field, *earlier):
            yield f"{state_name}.{field_name}{dot}{part}"


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
