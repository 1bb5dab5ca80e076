"""The check that each event of a source belongs to one interval only. Pure: it yields problems and never raises."""

import re
from collections.abc import Iterator

from statelib.definition.parts.model import Schedule
from statelib.definition.parts.source import Source
from statelib.definition.problems import Problem
from statelib.definition.source.intervals import first_intervals
from statelib.definition.source.parts import range_text, source_part
from statelib.definition.source.templates import BOUNDS, placeholders
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms

NOT_BOUNDED = "source-not-bounded"
FAR_APART = (DataInterval(981_173_106_000, 981_173_107_000), DataInterval(1_355_961_599_000, 1_355_961_600_000))
"""Two intervals that differ in every unit of time."""
_PROBED = 64
"""The number of intervals of a schedule whose places are compared: enough for the hours of a day, the days of a month,
and the minutes of an hour."""
_COMPARED = re.compile(
    r"(<=>|<=|>=|<>|!=|=|<|>|\bbetween\b|\band\b)\s*(?:date|timestamp\w*)?\s*['\"]?\{(start|end)\b", re.I
)
"""A comparison whose right side begins with a bound: its operator and the bound."""
_WHERE = ("source", "where")


def check_bounds(source: Source, schedule: Schedule | None) -> Iterator[Problem]:
    """Yield a problem if two intervals would apply the same event, as far as the templates show it. ``schedule``: None
    if there is none, or if it has problems."""
    field = _bounding_field(source)
    if field is None:
        text = "names neither {start} nor {end}: every interval would apply the same events again"
        where = ("path",) if source.path is not None else ("table",) if source.table is not None else ("options",)
        hint = "write for example {start:%Y-%m-%d}" if source.path is not None else "write source.where"
        yield Problem(("source", *where), f"{text}; {hint}", NOT_BOUNDED)
        return
    if source.where is not None:
        yield from _check_condition(source.where, alone=field == ("where",))
    start_ms = epoch_ms(schedule.start) if schedule else 0
    probed = first_intervals(schedule.cron, start_ms, _PROBED) if schedule else list(FAR_APART)
    seen: dict[object, DataInterval] = {}
    for interval in probed:
        other = seen.setdefault(source_part(source, "", interval).texts, interval)
        if other is not interval:
            twice = f"the intervals {range_text(other)} and {range_text(interval)} have the same {field[-1]}"
            yield Problem(
                ("source", *field), f"{twice}: the second would apply the events of the first again", NOT_BOUNDED
            )
            return


def _bounding_field(source: Source) -> tuple[str, ...] | None:
    """Return the first template that names a bound, None if there is none."""
    for field, text in source.templates.items():
        if not set(BOUNDS).isdisjoint(placeholders(text)):
            return field
    return None


def _check_condition(where: str, *, alone: bool) -> Iterator[Problem]:
    """Yield the problem of a condition whose comparisons show that an event would be read twice or never. ``alone``:
    no other template names a bound."""
    compared = {bound: operator.lower() for operator, bound in _COMPARED.findall(where)}
    start, end = compared.get("start"), compared.get("end")
    if "between" in (start, end) or (start == ">=" and end == "<="):
        text = "an event at {end} would be applied by two intervals; write >= '{start}' AND ... < '{end}'"
        yield Problem(_WHERE, text, NOT_BOUNDED)
    elif start == ">" and end == "<":
        yield Problem(_WHERE, "an event at {start} would never be applied; write >= '{start}'", NOT_BOUNDED)
    elif alone and not (set(BOUNDS) <= set(placeholders(where)) or "=" in (start, end)):
        text = "names one end of the interval only: events would be applied by several intervals"
        yield Problem(_WHERE, f"{text}; write >= '{{start}}' AND ... < '{{end}}'", NOT_BOUNDED)
