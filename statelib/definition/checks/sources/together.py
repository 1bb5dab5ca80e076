"""Checks of all sources of a pipeline file together. Pure: they yield problems and never raise."""

from collections.abc import Iterator, Mapping

from statelib.aggregates.kinds import Nulls
from statelib.definition.checks.names import name_problems
from statelib.definition.checks.sources.changes import check_changes
from statelib.definition.checks.sources.source import check_ready, check_schedule, check_source
from statelib.definition.declared import DeclaredPipeline
from statelib.definition.parts.model import StateDefinition
from statelib.definition.parts.source import Source
from statelib.definition.parts.types import columns_of
from statelib.definition.problems import Problem, Where
from statelib.definition.states import with_whole_rows
from statelib.model.types import VOID


def check_sources(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield the problems of the schedule, of each source, and of all sources together."""
    faults = list(check_schedule(pipeline.schedule)) if pipeline.schedule else []
    yield from faults
    if not pipeline.inputs:
        yield Problem(("source",), "is missing: expected source, or sources by name")
    elif pipeline.source is not None and pipeline.sources:
        yield Problem(("sources",), "expected source or sources, found both")
    for field, source in pipeline.inputs.items():
        where = tuple(field.split(".", 1))
        if field != "source":
            yield from _check_name(where[1], where)
        schedule = None if faults else pipeline.cron_schedule
        yield from check_source(source, where, schedule)
        if source.ready is not None:
            scheduled = pipeline.cron_schedule is not None
            yield from check_ready(source, source.ready, (*where, "ready"), schedule, scheduled=scheduled)
    yield from check_changes(pipeline)
    if len(pipeline.sources) > 1:
        yield from _check_types(pipeline.sources)
        yield from _check_in_every_source(pipeline)


def _check_name(name: str, where: Where) -> Iterator[Problem]:
    yield from name_problems(name, where)
    if not name or "." in name or name != name.strip():
        yield Problem(where, f"expected a name without dots and without blanks around it, found {name!r}")


def _check_types(sources: Mapping[str, Source]) -> Iterator[Problem]:
    """Yield a problem per column that has another type than the column of the same name in an earlier source."""
    first: dict[str, str] = {}
    for name, source in sources.items():
        types = columns_of(source.types())
        for column, type_ in types.items():
            other = first.setdefault(column, name)
            expected = columns_of(sources[other].types())[column]
            if None not in (type_, expected) and type_ != expected:
                text = f"expected {expected}, as in sources.{other}, found {type_}: a column has one type"
                yield Problem(("sources", name, "columns", column), text)


def _check_in_every_source(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield a problem per column that each event needs and that a source does not have."""
    needed = dict.fromkeys(pipeline.order_by, "in order_by") | dict.fromkeys(pipeline.key, "the key")
    for name, state in pipeline.states.items():
        needed |= {column: why for column, why in _needed(name, state, pipeline) if column not in needed}
    declared = pipeline.declared_columns()
    for name, source in pipeline.sources.items():
        for column, why in needed.items():
            if column in declared and column not in source.columns:
                text = f"has no column {column!r}: it is {why}, which every source must have"
                yield Problem(("sources", name, "columns"), text)
    for name, state in pipeline.states.items():
        whole = with_whole_rows(state, dict.fromkeys(declared, VOID), pipeline.key)
        yield from _check_kept_nulls(name, whole, pipeline.sources)


def _needed(name: str, state: StateDefinition, pipeline: DeclaredPipeline) -> Iterator[tuple[str, str]]:
    """Yield the columns of a state without which an event fails the run, and what they are."""
    if state.window is not None:
        yield state.window.time, f"the time of the windows of state {name}"
    if state.user_key is not None and pipeline.on_null_key == "fail":
        yield state.user_key, f"the user key of state {name} (unless on_null_key is drop)"


def _check_kept_nulls(name: str, state: StateDefinition, sources: Mapping[str, Source]) -> Iterator[Problem]:
    """Yield a problem per field that would take a null from an event only because its source lacks the column. A source
    whose events are all deletes gives no values."""
    sources = {source_name: source for source_name, source in sources.items() if not _deletes_only(source)}
    for field_name, field in state.fields.items() if state.value is None else [("value", state.value)]:
        keeps_nulls = field.nulls is Nulls.KEEP or field.together
        ordering = {*field.by, *([field.where] if field.where else [])}
        for source_name, source in sources.items():
            lacking = [column for column in field.columns if column not in source.columns]
            if keeps_nulls and lacking and ordering <= set(source.columns):
                where = ("states", name, *(("fields",) if state.value is None else ()), field_name)
                text = f"events of sources.{source_name}, which has no {lacking[0]}, would replace it by a null"
                hint = "name a column in 'by' or 'where' that only the other sources have"
                yield Problem(where, f"{text}: {hint}")


def _deletes_only(source: Source) -> bool:
    return (source.delete_when or "").strip().lower() == "true"
