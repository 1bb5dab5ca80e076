"""The path of a source as a template: its text for an interval, and whether it identifies an interval exactly."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise
from string import Formatter

from statelib.definition.parts.zones import is_ambiguous
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import epoch_ms, moment_of

MAX_UNITS = 10_000
"""The largest number of units of time in one interval."""
PLACEHOLDERS = ("data", "start", "end")
BOUNDS = ("start", "end")

_VARIABLE = re.compile(r"\{env\[(\w+)\]\}")
_EPOCH = re.compile(r"%(.)", re.DOTALL)
_DIRECTIVE = re.compile(r"%[-_0^#]?(.)", re.DOTALL)


def placeholders(template: str) -> list[str]:
    """Return the names of the placeholders of a template, in order. Raises ValueError if it is not a template."""
    return [name for _, name in _specifications(template)]


def is_variable(placeholder: str) -> bool:
    """Return whether a placeholder is ``env[NAME]``, a variable of the environment."""
    return _VARIABLE.fullmatch(f"{{{placeholder}}}") is not None


class _KeptVariables:
    """The placeholders ``{env[NAME]}``, each of which is replaced by itself."""

    def __getitem__(self, name: str) -> str:
        return f"{{env[{name}]}}"


class _Bound(datetime):
    """A moment whose seconds since the epoch, ``%s``, are those of its zone: those of strftime are those of a clock in
    the zone of the host."""

    @classmethod
    def of(cls, moment: datetime) -> "_Bound":
        return cls.combine(moment.date(), moment.timetz()).replace(fold=moment.fold)  # combine of a subclass drops it

    def __format__(self, specification: str) -> str:
        seconds = str(int(self.timestamp()))
        return super().__format__(_EPOCH.sub(lambda match: seconds if match[1] == "s" else match[0], specification))


def at_interval(template: str, data: str, interval: DataInterval, zone: tzinfo = UTC) -> str:
    """Return the text of a template for one interval. It may use ``data``, ``start`` and ``end`` (datetimes in
    ``zone``).

    ``{env[NAME]}`` stays as it is: :func:`with_variables` replaces it where the source is read, so that no other place
    holds a secret."""
    start, end = map(_Bound.of, _bounds(interval, zone))
    return template.format(data=data, start=start, end=end, env=_KeptVariables())


def _bounds(interval: DataInterval, zone: tzinfo) -> tuple[datetime, datetime]:
    return moment_of(interval.start_ms).astimezone(zone), moment_of(interval.end_ms).astimezone(zone)


def with_variables(text: str, variables: Mapping[str, str]) -> str:
    """Return a text with the value of the variable for each ``{env[NAME]}``. Raises KeyError, with the name."""
    return _VARIABLE.sub(lambda match: variables[match[1]], text)


def is_whole_path(marker: str) -> bool:
    """Return whether a marker is a path of its own, not a name in the interval's directory."""
    return marker.startswith(("/", "{data}")) or ":/" in marker


def names_exactly(template: str, interval: DataInterval, zone: tzinfo = UTC) -> bool:
    """Return whether the path identifies this interval alone, without regard to a schedule.

    It does if it contains both bounds, each to the last digit that is not zero, or if the interval is the one unit of
    time that it contains: a day for ``{start:%Y-%m-%d}``, a month for ``{start:%Y-%m}``. Units are those of ``zone``.
    A local time that comes twice does not identify a moment, unless the template contains its offset."""
    start, end = _bounds(interval, zone)
    units = {bound: _finest(template, bound) for bound in BOUNDS}
    ambiguous = [
        bound
        for bound, moment in (("start", start), ("end", end))
        if units[bound] in ("microsecond", *_ZEROS) and is_ambiguous(moment)
    ]
    if not all(_has_offset(template, bound) for bound in ambiguous):
        return False
    if units["start"] is not None and units["end"] is not None:
        return _is_begin(units["start"], start) and _is_begin(units["end"], end)
    unit = units["start"] or units["end"]
    if unit is None or unit not in _NEXT:
        return False
    return _is_begin(unit, start) and epoch_ms(_NEXT[unit](start)) == interval.end_ms


def units_of(template: str, interval: DataInterval, zone: tzinfo = UTC) -> tuple[DataInterval, ...]:
    """Return the units of time that an interval consists of and that the template identifies, such as the days of a
    week for ``{start:%Y-%m-%d}``; none if it does not consist of whole ones, or of more than :data:`MAX_UNITS`."""
    units = [unit for unit in (_finest(template, bound) for bound in BOUNDS) if unit is not None]
    if len(units) != 1 or units[0] not in _NEXT:
        return ()
    moment, _ = _bounds(interval, zone)
    bounds = [interval.start_ms]
    while bounds[-1] < interval.end_ms and len(bounds) <= MAX_UNITS:
        moment = _NEXT[units[0]](moment)
        bounds.append(epoch_ms(moment))
    parts = tuple(DataInterval(*pair) for pair in pairwise(bounds))
    is_whole = bounds[-1] == interval.end_ms and all(names_exactly(template, part, zone) for part in parts)
    return parts if is_whole else ()


def _finest(template: str, bound: str) -> str | None:
    """Return the smallest unit of time of a bound that the template contains, None if it contains none."""
    units = {unit for spec, name in _specifications(template) if name == bound for unit in _units(spec)}
    return next((unit for unit in _UNITS if unit in units), None)


def _has_offset(template: str, bound: str) -> bool:
    """Return whether the template contains the offset of a bound, if it contains the bound at all."""
    specifications = [spec for spec, name in _specifications(template) if name == bound]
    return not specifications or any(spec is None or "%z" in spec or "%:z" in spec for spec in specifications)


def _specifications(template: str) -> Iterator[tuple[str | None, str]]:
    """Yield format and name of each placeholder. The format is None if the whole datetime is written."""
    for _, name, specification, conversion in Formatter().parse(template):
        if name is not None:
            yield None if conversion or not specification else specification, name


def _units(specification: str | None) -> Iterator[str]:
    if specification is None:
        yield "microsecond"
        return
    for directive in _DIRECTIVE.findall(specification):
        yield from (unit for unit, directives in _UNITS.items() if directive in directives)


_UNITS = {
    "microsecond": "f", "second": "SsTcX", "minute": "MR", "hour": "HIr", "day": "djeDFxaAwu", "week": "UWV",
    "month": "mbBh", "year": "yYGg",
}  # fmt: skip
"""The directives of strftime by the unit that they write, from the smallest unit to the largest."""
_ZEROS = {"second": 1, "minute": 2, "hour": 3}
"""The number of fields, of microsecond, second, minute and hour, that are 0 at the beginning of a unit."""


def _begin(unit: str, moment: datetime) -> datetime:
    """Return the beginning of the unit of time that contains a moment. A week begins on Monday or Sunday. A day whose
    midnight comes twice begins at the first one."""
    if unit == "microsecond":
        return moment
    fields = ("microsecond", "second", "minute", "hour")[: _ZEROS.get(unit, 4)]
    moment = moment.replace(**dict.fromkeys(fields, 0))  # type: ignore[arg-type]
    moment = moment if unit in _ZEROS else moment.replace(fold=0)
    if unit == "week" and moment.weekday() != 6:
        return moment - timedelta(days=moment.weekday())
    if unit == "month":
        return moment.replace(day=1)
    return moment.replace(day=1, month=1) if unit == "year" else moment


def _is_begin(unit: str, moment: datetime) -> bool:
    """Return whether a unit of time begins at a moment. If the clock leaves out a midnight, the moment counts."""
    return epoch_ms(_begin(unit, moment)) == epoch_ms(moment)


def _later(moment: datetime, **passed: int) -> datetime:
    """Return the moment after some time has passed, whatever the clock shows. An hour may come twice."""
    return (moment.astimezone(UTC) + timedelta(**passed)).astimezone(moment.tzinfo)


_NEXT: dict[str, Callable[[datetime], datetime]] = {
    "second": lambda moment: _later(moment, seconds=1),
    "minute": lambda moment: _later(moment, minutes=1),
    "hour": lambda moment: _later(moment, hours=1),
    "day": lambda moment: _begin("day", moment + timedelta(days=1)),
    "week": lambda moment: _begin("day", moment + timedelta(days=7)),
    "month": lambda moment: _begin("month", moment + timedelta(days=31)),
    "year": lambda moment: _begin("year", moment + timedelta(days=366)),
}
"""Functions from the beginning of a unit to the beginning of the next one. A bare ``{start}`` has no unit."""
