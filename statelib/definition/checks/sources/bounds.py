"""The check that each event of a source belongs to one interval only. Pure: it yields problems and never raises."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, tzinfo
from functools import lru_cache
from itertools import groupby

from statelib.definition.parts.model import Schedule
from statelib.definition.parts.source import Source
from statelib.definition.parts.zones import is_ambiguous
from statelib.definition.problems import Problem, Where, dotted
from statelib.definition.source.comparisons import OPERATORS, plain_comparisons
from statelib.definition.source.intervals import REMEMBERED, changes_of, first_intervals
from statelib.definition.source.parts import range_text, source_part
from statelib.definition.source.readiness import marker_path
from statelib.definition.source.templates import BOUNDS, placeholders
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms, moment_of

NOT_BOUNDED = "source-not-bounded"
FAR_APART = (DataInterval(981_173_106_000, 981_173_107_000), DataInterval(1_355_961_599_000, 1_355_961_600_000))
"""Two intervals that differ in every unit of time."""
_CALENDAR_MS = 28 * 1461 // 4 * 86_400_000
"""The period of the calendar: after 28 years, every date has its weekday and its week again; only the year differs."""
_PROBED = 64
"""The number of intervals of a schedule whose places are compared: enough for the hours of a day, the days of a month,
and the minutes of an hour."""
_COMPARED = re.compile(rf"({OPERATORS}|\bbetween\b|\band\b)\s*(?:date|timestamp\w*)?\s*['\"]?\{{(start|end)\b", re.I)
"""A comparison whose right side begins with a bound: its operator and the bound."""


def check_bounds(source: Source, where: Where, schedule: Schedule | None) -> Iterator[Problem]:
    """Yield a problem if two intervals would apply the same event, as far as the templates show it. ``where``: the
    source's field. ``schedule``: None if there is none, or if it has problems."""
    field = _bounding_field(source)
    if source.incremental:
        if field is not None:
            text = (
                "names {start} or {end}: an incremental source is read by the commits of its table, which need no bound"
            )
            yield Problem((*where, *field), text)
        return
    if field is None:
        text = "names neither {start} nor {end}: every interval would apply the same events again"
        place = "path" if source.path is not None else "table" if source.table is not None else "options"
        hint = "write for example {start:%Y-%m-%d}" if source.path is not None else f"write {dotted(where)}.where"
        yield Problem((*where, place), f"{text}; {hint}", NOT_BOUNDED)
        return
    for key, template in source.templates.items():
        if key == ("where",) or (key[0] == "options" and _compared(template)):
            yield from _check_condition(template, (*where, *key), alone=field == key)
    probed = _probed(schedule)
    same = next(filter(None, (_same_texts(source, schedule, intervals) for intervals in probed)), None)
    if same is not None:
        text = f"the intervals {range_text(same[0])} and {range_text(same[1])} have the same {field[-1]}"
        text = f"{text}: the second would apply the events of the first again{_hint(schedule, same[1])}"
        yield Problem((*where, *field), text, NOT_BOUNDED)
    elif _same_texts(source, schedule, _years_apart(probed)) is not None:
        text = f"the {field[-1]} of the interval {range_text(probed[0][0])} comes again in a later year, if not before"
        text = f"{text}: that interval would apply the same events again; name the year too, as {{start:%Y-%m-%d}}"
        yield Problem((*where, *field), text, NOT_BOUNDED)


def check_marker_bounds(source: Source, marker: str, where: Where, schedule: Schedule | None) -> Iterator[Problem]:
    """Yield a problem if the marker of one interval is that of all others, or of a later one after those between them:
    it would exist before the events of the later one are complete. One marker may serve several intervals in sequence,
    such as the hours of a day. ``schedule``: as in :func:`check_bounds`."""
    zone = _zone(schedule)

    def path_at(interval: DataInterval) -> str:
        return marker_path(marker, "", source_part(source, "", "", interval, zone), zone)

    if len(set(map(path_at, FAR_APART))) == 1:
        text = f"{marker!r} is the same file for all intervals: it would exist before the events of later ones"
        yield Problem(where, f"{text}; write {{start}} or {{end}} in it, as {{data}}/done/{{start:%Y-%m-%d}}")
        return
    probed = _probed(schedule)
    in_sequence = [path for path, _ in groupby(map(path_at, probed[0]))]
    if len(in_sequence) != len(set(in_sequence)) or len(set(map(path_at, _years_apart(probed)))) == 1:
        text = f"{marker!r} repeats: it would exist before the events of later intervals"
        yield Problem(where, f"{text}; write more of {{start}} or {{end}} in it, as {{start:%Y-%m-%d}}")


@lru_cache(maxsize=REMEMBERED)
def _probed(schedule: Schedule | None) -> tuple[Sequence[DataInterval], ...]:
    """Return the first intervals of a schedule, and those around each change of its clock. Without a schedule, return
    :data:`FAR_APART`."""
    if schedule is None:
        return (FAR_APART,)
    first = first_intervals(schedule, epoch_ms(schedule.start), _PROBED)
    return first, *(around for _, around in changes_of(schedule))


def _years_apart(probed: Sequence[Sequence[DataInterval]]) -> tuple[DataInterval, DataInterval]:
    """Return the first interval, and one that differs from it in the year alone."""
    first = probed[0][0]
    return first, DataInterval(first.start_ms + _CALENDAR_MS, first.end_ms + _CALENDAR_MS)


def _zone(schedule: Schedule | None) -> tzinfo:
    return schedule.zone if schedule else UTC


def _same_texts(
    source: Source, schedule: Schedule | None, intervals: Sequence[DataInterval]
) -> tuple[DataInterval, DataInterval] | None:
    """Return the first two intervals with the same texts, None if there are none."""
    zone = _zone(schedule)
    seen: dict[object, DataInterval] = {}
    for interval in intervals:
        other = seen.setdefault(source_part(source, "", "", interval, zone).texts, interval)
        if other is not interval:
            return other, interval
    return None


def _hint(schedule: Schedule | None, repeated: DataInterval) -> str:
    """Return what to do if an interval has the text of another because the clock is set back, '' if it is not."""
    if schedule is None:
        return ""
    bounds = (moment_of(ms).astimezone(schedule.zone) for ms in (repeated.start_ms, repeated.end_ms))
    if not any(is_ambiguous(bound) for bound in bounds):
        return ""
    return (
        f"; the clock of {schedule.time_zone} is set back: write the offset too, as {{start:%Y-%m-%dT%H%z}}, or leave "
        "schedule.time_zone out"
    )


def _bounding_field(source: Source) -> tuple[str, ...] | None:
    """Return the first template that names a bound, None if there is none."""
    for field, text in source.templates.items():
        if not set(BOUNDS).isdisjoint(placeholders(text)):
            return field
    return None


def _compared(condition: str) -> list[tuple[str, str]]:
    """Return the operator and the bound of each comparison with a bound."""
    return [(op.lower(), bound.lower()) for op, bound in _COMPARED.findall(plain_comparisons(condition))]


def _check_condition(condition: str, where: Where, *, alone: bool) -> Iterator[Problem]:
    """Yield the problem of a condition, or of a query, whose comparisons show that an event would be read twice or
    never. ``alone``: no template before it names a bound."""
    start, end = ({op for op, of in _compared(condition) if of == bound} for bound in BOUNDS)
    if "between" in start | end or (">=" in start and "<=" in end and "<" not in end):
        text = "an event at {end} would be applied by two intervals; write >= '{start}' AND ... < '{end}'"
        yield Problem(where, text, NOT_BOUNDED)
    elif (start, end) == ({">"}, {"<"}):
        yield Problem(where, "an event at {start} would never be applied; write >= '{start}'", NOT_BOUNDED)
    elif alone and not (set(BOUNDS) <= set(placeholders(condition)) or "=" in start | end):
        text = "names one end of the interval only: events would be applied by several intervals"
        yield Problem(where, f"{text}; write >= '{{start}}' AND ... < '{{end}}'", NOT_BOUNDED)
