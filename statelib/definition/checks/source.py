"""Checks of a pipeline file's schedule and source. Pure: they yield problems and never raise."""

from collections.abc import Iterator

from statelib.definition.checks.bounds import FAR_APART, check_bounds
from statelib.definition.checks.names import name_problems
from statelib.definition.checks.states import check_type
from statelib.definition.parts.durations import milliseconds
from statelib.definition.parts.model import Schedule
from statelib.definition.parts.source import Ready, Source, SourceColumn
from statelib.definition.parts.types import column_type_problem, type_of
from statelib.definition.parts.zones import zone_problem
from statelib.definition.problems import Problem, did_you_mean
from statelib.definition.source.intervals import clock_change_problem, cron_problem
from statelib.definition.source.templates import PLACEHOLDERS, at_interval, is_variable, is_whole_path, placeholders

FILE_FORMATS = ("parquet", "orc", "json", "csv", "text", "avro", "xml", "delta")
"""Formats that Spark reads from a path only."""


def check_source(source: Source, schedule: Schedule | None) -> Iterator[Problem]:
    """Yield the problems of the source, of the schedule, and of both together."""
    faults = list(_check_schedule(schedule)) if schedule else []
    yield from faults
    place = list(_check_place(source))
    yield from place
    for name, column in source.columns.items():
        yield from _check_column(column, ("source", "columns", name))
    templates = [p for field, text in source.templates.items() for p in _check_template(text, ("source", *field))]
    yield from templates
    if not place and not templates:
        yield from check_bounds(source, None if faults else schedule)
    yield from _check_zone(source.time_zone, ("source", "time_zone"))
    if source.ready is not None:
        yield from _check_ready(source, source.ready, schedule)


def _check_place(source: Source) -> Iterator[Problem]:
    """Yield the problems of path, table, format and options together."""
    if source.table is not None:
        yield from _check_table(source)
    elif source.path is None and source.file_format.lower() in FILE_FORMATS:
        yield Problem(("source", "path"), "is missing: expected path or table")
    for field in ("path", "table", "where"):
        if getattr(source, field) == "":
            yield Problem(("source", field), "expected a text, found none")
    for name in source.options:
        if name.lower() in ("path", "paths"):
            yield Problem(("source", "options", name), "write it as source.path")


def _check_table(source: Source) -> Iterator[Problem]:
    if source.path is not None:
        yield Problem(("source", "table"), "a source is a path or a table, found both")
    if source.format is not None:
        yield Problem(("source", "format"), "Spark's catalog has the format of a table: leave it out")
    if source.on_missing == "empty":
        yield Problem(("source", "on_missing"), "only a path may be missing, and this source is a table")


def _check_template(text: str, where: tuple[str, ...]) -> Iterator[Problem]:
    """A template of the placeholders ``{data}``, ``{start}`` and ``{end}``."""
    try:
        names = [name for name in placeholders(text) if not (where[1] == "options" and is_variable(name))]
    except ValueError as error:
        yield Problem(where, f"not a template: {error}")
        return
    unknown = [name for name in names if name not in PLACEHOLDERS]
    for name in unknown:
        meant = did_you_mean(name, PLACEHOLDERS)
        yield Problem(where, f"unknown placeholder {{{name}}}{meant}; known are {{data}}, {{start}}, {{end}}")
    if not unknown:
        try:
            at_interval(text, "", FAR_APART[0])
        except (ValueError, LookupError) as error:
            yield Problem(where, f"not a template: {error}")


def _check_schedule(schedule: Schedule) -> Iterator[Problem]:
    problem = cron_problem(schedule.cron)
    if problem is not None:
        yield Problem(("schedule", "cron"), f"{schedule.cron!r}: {problem}", "bad-cron")
    yield from _check_zone(schedule.time_zone, ("schedule", "time_zone"))
    if schedule.end is not None and schedule.end < schedule.start:
        yield Problem(("schedule", "end"), f"{schedule.end} is before start, {schedule.start}")
    if problem is None and (text := clock_change_problem(schedule)):
        yield Problem(("schedule", "cron"), text, "bad-cron")


def _check_zone(name: str | None, where: tuple[str, ...]) -> Iterator[Problem]:
    problem = None if name is None else zone_problem(name)
    if problem is not None:
        yield Problem(where, problem)


def _check_column(column: SourceColumn, where: tuple[str, ...]) -> Iterator[Problem]:
    text = column.type
    faults = [*name_problems(where[-1], where, in_type=True), *check_type(text, where)]
    yield from faults
    if not faults and (problem := column_type_problem(type_of(text))):
        yield Problem(where, f"{problem}; found {text}")
    if column.expr is not None and not column.expr.strip():
        yield Problem((*where, "expr"), "expected an expression in SQL, found none")


def _check_ready(source: Source, ready: Ready, schedule: Schedule | None) -> Iterator[Problem]:
    where = ("source", "ready")
    if not (ready.marker or ready.min_age or ready.next_interval or ready.asset):
        yield Problem(where, "expected one of marker, min_age, next_interval and asset")
    if ready.marker is not None:
        yield from _check_marker(source, ready, ready.marker)
    if source.path is None:
        yield from _check_ready_without_path(ready)
    if ready.next_interval and schedule is None:
        yield Problem((*where, "next_interval"), "a pipeline without a schedule has no next interval")
    for name in ("poke_interval", "timeout", "min_age"):
        value = getattr(ready, name)
        if value is not None and milliseconds(value) == 0:
            yield Problem((*where, name), "expected a duration of more than 0")


def _check_marker(source: Source, ready: Ready, marker: str) -> Iterator[Problem]:
    where = ("source", "ready", "marker")
    yield from _check_template(marker, where)
    others = ready.min_age or ready.next_interval or ready.asset
    if source.on_missing == "empty" and not is_whole_path(marker) and not others:
        text = "a directory that may be missing has no marker either: write also min_age, next_interval or asset"
        yield Problem(where, f"{text}, or a marker that is a path of its own, as {{data}}/done/x")


def _check_ready_without_path(ready: Ready) -> Iterator[Problem]:
    named = {"min_age": ready.min_age, "next_interval": ready.next_interval}
    for name in (name for name, value in named.items() if value):
        yield Problem(("source", "ready", name), "is for files: this source has no path; use marker or asset")
    if ready.marker is not None and not is_whole_path(ready.marker):
        text = "this source has no directory: write a path of its own, which begins with {data}, / or a scheme"
        yield Problem(("source", "ready", "marker"), text)
