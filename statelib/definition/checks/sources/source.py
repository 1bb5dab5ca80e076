"""Checks of a pipeline file's schedule and of one source. Pure: they yield problems and never raise."""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from statelib.definition.checks.names import name_problems
from statelib.definition.checks.sources.bounds import FAR_APART, check_bounds, check_marker_bounds
from statelib.definition.checks.states.state import check_type
from statelib.definition.parts.durations import milliseconds
from statelib.definition.parts.model import Schedule
from statelib.definition.parts.source import DATA_FORMATS, Ready, Source, SourceColumn
from statelib.definition.parts.types import column_type_problem, type_of
from statelib.definition.parts.zones import zone_problem
from statelib.definition.problems import Problem, Where, did_you_mean, dotted
from statelib.definition.source.intervals import clock_change_problem, cron_problem
from statelib.definition.source.templates import PLACEHOLDERS, at_interval, is_variable, is_whole_path, placeholders

FILE_FORMATS = (*DATA_FORMATS, "delta")
"""Formats that Spark reads from a path only."""
FORMATS_WITH_SCHEMA = ("parquet", "orc", "json", "csv", "avro", "xml")
"""Formats that Spark reads with a schema that the user gives."""
INCREMENTAL_PLACES = {"delta": "path", "iceberg": "table"}
"""The formats whose commits can be read, and the field that has the place of such a table."""
_OTHER_NAMES = {
    "tinyint": "byte", "smallint": "short", "integer": "int", "bigint": "long", "int64": "long", "bool": "boolean",
    "varchar": "string", "text": "string", "binary": "bytes", "timestamp_ntz": "datetime",
    "timestamp": "instant, or datetime for times without a zone",
}  # fmt: skip
"""The names that SQL has for types of columns, and the names here."""
_MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
"""Spark's names for what becomes of a record of a text format that cannot be read as a whole."""
_ASSET = re.compile(r"(?!(?i:(x-)?airflow):)[A-Za-z][A-Za-z0-9+.-]*://[\x21-\x7e]{1,1400}")
"""The URIs that Airflow accepts for an asset."""

_PLACEHOLDER = re.compile(rf"\{{(?:{'|'.join(PLACEHOLDERS)})(?:[:!][^{{}}]*)?\}}")


def check_source(source: Source, where: Where, schedule: Schedule | None) -> Iterator[Problem]:
    """Yield the problems of the source in the field ``where``. ``schedule``: None if there is none, or if it has
    problems."""
    place = list(_check_place(source, where))
    yield from place
    for name, column in source.columns.items():
        yield from _check_column(column, (*where, "columns", name))
    for name, text in source.each.items():
        yield from name_problems(name, (*where, "each", name), in_type=True)
        if not text.strip():
            yield Problem((*where, "each", name), "expected an expression in SQL for a list, found none")
    yield from _check_no_templates(source, where)
    templates = list(_check_templates(source, where))
    yield from templates
    if not place and not templates:
        yield from check_bounds(source, where, schedule)
    yield from _check_zone(source.time_zone, (*where, "time_zone"))


def _check_place(source: Source, where: Where) -> Iterator[Problem]:
    """Yield the problems of path, table, format and options together."""
    if source.incremental:
        yield from _check_incremental(source, where)
    elif source.table is not None:
        yield from _check_table(source, where)
    elif source.path is None and source.file_format.lower() in FILE_FORMATS:
        yield Problem((*where, "path"), "is missing: expected path or table")
    yield from _check_file_schema(source, where)
    for field in ("path", "table", "where", "file_schema"):
        if getattr(source, field) == "":
            yield Problem((*where, field), "expected a text, found none")
    for name in source.options:
        if name.lower() in ("path", "paths"):
            yield Problem((*where, "options", name), f"write it as {dotted(where)}.path")
    yield from _check_mode(source, where)


def _check_mode(source: Source, where: Where) -> Iterator[Problem]:
    """Yield the problem of a mode that Spark does not know: it would take nulls for what it cannot read."""
    if source.table is not None or source.file_format.lower() not in ("csv", "json", "xml"):
        return
    for name, mode in source.options.items():
        if name.lower() == "mode" and "{" not in mode and mode.upper() not in _MODES:
            yield Problem((*where, "options", name), f"expected {', '.join(_MODES)}; found {mode!r}")


def _check_file_schema(source: Source, where: Where) -> Iterator[Problem]:
    if source.file_schema is None or (source.table is None and source.file_format.lower() in FORMATS_WITH_SCHEMA):
        return
    given = source.file_format if source.table is None else "a table"
    formats = ", ".join(FORMATS_WITH_SCHEMA)
    yield Problem((*where, "file_schema"), f"expected files in one of the formats {formats}; found {given}")


def _check_incremental(source: Source, where: Where) -> Iterator[Problem]:
    place = INCREMENTAL_PLACES.get(source.format or "")
    given = [field for field in ("path", "table") if getattr(source, field) is not None]
    if given != [place]:
        text = "expected format delta with a path, or format iceberg with a table"
        yield Problem(
            (*where, "incremental"), f"{text}; found {source.file_format} with {' and '.join(given) or 'none'}"
        )


def _check_table(source: Source, where: Where) -> Iterator[Problem]:
    if source.path is not None:
        yield Problem((*where, "table"), "a source is a path or a table, found both")
    if source.format is not None:
        yield Problem((*where, "format"), "Spark's catalog has the format of a table: leave it out")
    if source.on_missing == "empty":
        yield Problem((*where, "on_missing"), "only a path may be missing, and this source is a table")


def _check_templates(source: Source, where: Where) -> Iterator[Problem]:
    for field, text in source.templates.items():
        yield from _check_template(text, (*where, *field), variables=field[0] == "options")


def _check_template(text: str, where: Where, *, variables: bool = False) -> Iterator[Problem]:
    """Yield the problems of a template of the placeholders ``{data}``, ``{start}`` and ``{end}``. ``variables``:
    whether ``{env[NAME]}`` is allowed, too."""
    try:
        names = [name for name in placeholders(text) if not (variables and is_variable(name))]
    except ValueError as error:
        yield Problem(where, f"not a template: {error}; double a brace of your own: {{{{ or }}}}")
        return
    unknown = [name for name in names if name not in PLACEHOLDERS]
    for name in unknown:
        meant = did_you_mean(name, PLACEHOLDERS)
        text = f"unknown placeholder {{{name}}}{meant}; known are {{data}}, {{start}}, {{end}}"
        yield Problem(where, f"{text}; double a brace of your own: {{{{{name}}}}}")
    if not unknown:
        try:
            at_interval(text, "", FAR_APART[0])
        except (ValueError, LookupError) as error:
            yield Problem(where, f"not a template: {error}")


def _check_no_templates(source: Source, where: Where) -> Iterator[Problem]:
    """Yield a problem per expression with a placeholder, which would be compared as the text that it is."""
    changes = source.changes
    texts: dict[tuple[str, ...], str | None] = {("delete_when",): source.delete_when}
    texts |= {("each", name): text for name, text in source.each.items()}
    texts |= {("columns", name, "expr"): column.expr for name, column in source.columns.items()}
    if changes is not None:
        texts |= {("changes", name): getattr(changes, name) for name in ("op", "before", "after")}
    for field, text in texts.items():
        if named := _PLACEHOLDER.search(text or ""):
            reason = f"{named[0]} is not replaced in an expression, only in path, table, where and options"
            yield Problem((*where, *field), f"{reason}; use the columns of the source, or compare with it in 'where'")


def check_schedule(schedule: Schedule) -> Iterator[Problem]:
    """Yield the problems of the schedule alone."""
    if bool(schedule.cron) == bool(schedule.asset):
        yield Problem(("schedule",), "expected one of cron and asset")
        return
    if schedule.asset:
        yield from _check_asset(schedule.asset, ("schedule", "asset"))
    problem = None if schedule.asset else cron_problem(schedule.cron)
    if schedule.catchup and schedule.asset:
        yield Problem(("schedule", "catchup"), "has no meaning for an asset: its runs follow its updates")
    if problem is not None:
        yield Problem(("schedule", "cron"), f"{schedule.cron!r}: {problem}", "bad-cron")
    yield from _check_zone(schedule.time_zone, ("schedule", "time_zone"))
    if schedule.end is not None and schedule.end < schedule.start:
        yield Problem(("schedule", "end"), f"{schedule.end} is before start, {schedule.start}")
    if problem is None and schedule.cron and (text := clock_change_problem(schedule)):
        yield Problem(("schedule", "cron"), text, "bad-cron")


def _check_asset(uri: str, where: Where) -> Iterator[Problem]:
    valid = _ASSET.fullmatch(uri) is not None
    try:
        urlsplit(uri)
    except ValueError:  # Airflow parses it, too
        valid = False
    if not valid:
        yield Problem(where, f"expected a URI such as s3://lake/orders, found {uri!r}")


def _check_zone(name: str | None, where: Where) -> Iterator[Problem]:
    problem = None if name is None else zone_problem(name)
    if problem is not None:
        yield Problem(where, problem)


def _check_column(column: SourceColumn, where: Where) -> Iterator[Problem]:
    yield from check_column_type(column.type, where)
    if column.expr is not None and not column.expr.strip():
        yield Problem((*where, "expr"), "expected an expression in SQL, found none")


def check_column_type(text: str, where: Where) -> Iterator[Problem]:
    """Yield the problems of a column's type. Its name is the last part of ``where``."""
    if meant := _OTHER_NAMES.get(text.lower()):
        yield Problem(where, f"expected {meant}, found {text}")
        return
    faults = [*name_problems(str(where[-1]), where, in_type=True), *check_type(text, where)]
    yield from faults
    if not faults and (problem := column_type_problem(type_of(text))):
        yield Problem(where, f"{problem}; found {text}")


def check_ready(
    source: Source, ready: Ready, where: Where, schedule: Schedule | None, *, scheduled: bool
) -> Iterator[Problem]:
    """Yield the problems of the field ``where``, which is ``ready`` of the source. ``schedule``: None if there is none
    by time, or if it has problems. ``scheduled``: whether there is one."""
    if not (ready.marker or ready.min_age or ready.next_interval or ready.asset):
        yield Problem(where, "expected one of marker, min_age, next_interval and asset")
    if ready.marker is not None:
        yield from _check_marker(source, ready, (*where, "marker"), schedule)
    if ready.asset:
        yield from _check_asset(ready.asset, (*where, "asset"))
    if source.path is None or source.incremental:
        yield from _check_ready_without_path(ready, where)
    if ready.next_interval and not scheduled:
        yield Problem((*where, "next_interval"), "a pipeline without a schedule has no next interval")
    for name in ("poke_interval", "timeout", "min_age"):
        value = getattr(ready, name)
        if value is not None and milliseconds(value) == 0:
            yield Problem((*where, name), "expected a duration of more than 0")


def _check_marker(source: Source, ready: Ready, where: Where, schedule: Schedule | None) -> Iterator[Problem]:
    marker = ready.marker or ""
    problems = list(_check_template(marker, where))
    yield from problems
    others = ready.min_age or ready.next_interval or ready.asset
    if source.on_missing == "empty" and not is_whole_path(marker) and not others:
        text = "a directory that may be missing has no marker either: write also min_age, next_interval or asset"
        yield Problem(where, f"{text}, or a marker that is a path of its own, as {{data}}/done/{{start:%Y-%m-%d}}")
    has_place = source.path is not None or is_whole_path(marker)
    if has_place and not problems and not any(_check_templates(source, where)):
        yield from check_marker_bounds(source, marker, where, schedule)


def _check_ready_without_path(ready: Ready, where: Where) -> Iterator[Problem]:
    named = {"min_age": ready.min_age, "next_interval": ready.next_interval}
    for name in (name for name, value in named.items() if value):
        yield Problem((*where, name), "is for dated files, which this source does not have; use marker or asset")
    if ready.marker is not None and not is_whole_path(ready.marker):
        text = "this source has no dated directory: write a path of its own, which begins with {data}, / or a scheme"
        yield Problem((*where, "marker"), text)
