"""Checks of a pipeline file's schedule and source. Pure: they yield problems and never raise."""

from collections.abc import Iterator
from string import Formatter

from statelib.definition.checks.names import name_problems
from statelib.definition.checks.states import check_type
from statelib.definition.durations import milliseconds
from statelib.definition.model import Ready, Schedule, Source
from statelib.definition.problems import Problem, did_you_mean
from statelib.definition.source.intervals import cron_problem, first_intervals
from statelib.definition.source.parts import range_text
from statelib.definition.source_templates import BOUNDS, PLACEHOLDERS, is_whole_path
from statelib.definition.types import COLUMN_TYPES, type_of
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms

NOT_BOUNDED = "source-not-bounded"
_PATH = ("source", "path")
_PROBED = 64
"""The number of intervals of a schedule whose paths are compared: enough for the hours of a day, the days of a month,
and the minutes of an hour."""
_FAR_APART = (DataInterval(981_173_106_000, 981_173_107_000), DataInterval(1_355_961_599_000, 1_355_961_600_000))
"""Two intervals that differ in every unit of time."""


def check_source(source: Source, schedule: Schedule | None) -> Iterator[Problem]:
    """Yield the problems of the source, of the schedule, and of both together."""
    faults = list(_check_schedule(schedule)) if schedule else []
    yield from faults
    for name, text in source.columns.items():
        yield from _check_column(text, ("source", "columns", name))
    templates = list(_check_template(source.path, _PATH))
    yield from templates
    if not templates:
        yield from _check_bounded(source, None if faults else schedule)
    if source.ready is not None:
        yield from _check_ready(source, source.ready, schedule)


def _check_template(text: str, where: tuple[str, ...]) -> Iterator[Problem]:
    """A template of the placeholders ``{data}``, ``{start}`` and ``{end}``."""
    try:
        names = [name for _, name, _, _ in Formatter().parse(text) if name is not None]
    except ValueError as error:
        yield Problem(where, f"not a template: {error}")
        return
    unknown = [name for name in names if name not in PLACEHOLDERS]
    for name in unknown:
        meant = did_you_mean(name, PLACEHOLDERS)
        yield Problem(where, f"unknown placeholder {{{name}}}{meant}; known are {{data}}, {{start}}, {{end}}")
    if not unknown:
        try:
            Source.model_construct(path=text).location("", _FAR_APART[0])
        except (ValueError, LookupError) as error:
            yield Problem(where, f"not a template: {error}")


def _check_schedule(schedule: Schedule) -> Iterator[Problem]:
    problem = cron_problem(schedule.cron)
    if problem is not None:
        yield Problem(("schedule", "cron"), f"{schedule.cron!r}: {problem}", "bad-cron")
    if schedule.end is not None and schedule.end < schedule.start:
        yield Problem(("schedule", "end"), f"{schedule.end} is before start, {schedule.start}")


def _check_column(text: str, where: tuple[str, ...]) -> Iterator[Problem]:
    faults = [*name_problems(where[-1], where, in_type=True), *check_type(text, where)]
    yield from faults
    if not faults and str(type_of(text)) not in COLUMN_TYPES:
        yield Problem(where, f"a column is one of {', '.join(COLUMN_TYPES)}; found {text}")


def _check_bounded(source: Source, schedule: Schedule | None) -> Iterator[Problem]:
    """Yield a problem if two intervals have the same path, because both runs would apply the same events. A filter by
    time would be another way to bound the events; there is none yet."""
    named = {name for _, name, _, _ in Formatter().parse(source.path)}
    if not named & set(BOUNDS):
        text = "names neither {start} nor {end}: every interval would apply the same events again"
        yield Problem(_PATH, f"{text}; write for example {{start:%Y-%m-%d}}", NOT_BOUNDED)
        return
    start_ms = epoch_ms(schedule.start) if schedule else 0
    probed = first_intervals(schedule.cron, start_ms, _PROBED) if schedule else list(_FAR_APART)
    seen: dict[str, DataInterval] = {}
    for interval in probed:
        other = seen.setdefault(source.location("", interval), interval)
        if other is not interval:
            twice = f"the intervals {range_text(other)} and {range_text(interval)} have the same path"
            yield Problem(_PATH, f"{twice}: the second would apply the events of the first again", NOT_BOUNDED)
            return


def _check_ready(source: Source, ready: Ready, schedule: Schedule | None) -> Iterator[Problem]:
    where = ("source", "ready")
    if not (ready.marker or ready.min_age or ready.next_interval or ready.asset):
        yield Problem(where, "expected one of marker, min_age, next_interval and asset")
    if ready.marker is not None:
        yield from _check_template(ready.marker, (*where, "marker"))
        others = ready.min_age or ready.next_interval or ready.asset
        if source.on_missing == "empty" and not is_whole_path(ready.marker) and not others:
            text = "a directory that may be missing has no marker either: write also min_age, next_interval or asset"
            yield Problem((*where, "marker"), f"{text}, or a marker that is a path of its own, as {{data}}/done/x")
    if ready.next_interval and schedule is None:
        yield Problem((*where, "next_interval"), "a pipeline without a schedule has no next interval")
    for name in ("poke_interval", "timeout", "min_age"):
        value = getattr(ready, name)
        if value is not None and milliseconds(value) == 0:
            yield Problem((*where, name), "expected a duration of more than 0")
