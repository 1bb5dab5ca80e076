"""Checks of one state of a pipeline file. Pure: they yield problems and never raise."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from statelib.aggregates.kinds import AGGREGATES, ColumnRule, Nulls, accepts
from statelib.definition.checks.names import name_problems
from statelib.definition.checks.states.time import check_time, is_reference, not_declared
from statelib.definition.parts.durations import milliseconds
from statelib.definition.parts.model import FieldDefinition, StateDefinition
from statelib.definition.parts.types import KEY_TYPES, Columns, is_key_type, type_of, undeclarable
from statelib.definition.problems import Problem, Where, did_you_mean
from statelib.errors import StatelibError
from statelib.model.session_state import WINDOW_SET, WINDOW_TIMERS
from statelib.model.types import BOOLEAN, DATETIME, INSTANT, VOID, Scalar, decimal_digits

AGGREGATES_OF_KIND = {
    "reducing": ("count", "sum", "min", "max", "bool_and", "bool_or"),
    "list": ("collect", "distinct", "top", "bottom"),
}
"""The aggregates of kinds that allow only some: the value of a reducing state has the type of its input, and a list
state holds elements."""

NUMBERS = {
    "n": "how many events to store",
    "limit": "how many values to store",
    "half_life": "the time in which a value is halved, for example 7d",
}
"""The keys of an aggregate's number, with their meanings."""


def check_state(name: str, state: StateDefinition, columns: Columns, key: Sequence[str]) -> Iterator[Problem]:
    """Yield all problems of one state."""
    where = ("states", name)
    yield from _check_name(name, where)
    for field_name in state.fields:
        yield from name_problems(field_name, (*where, "fields", field_name), in_type=True)
    yield from check_time(state, columns, key, where)
    yield from _check_shape(state, where)
    yield from _check_user_key(state, columns, where)
    if state.function is not None:
        yield from _check_function(state, key, where)
        return
    allowed = AGGREGATES_OF_KIND.get(state.kind, tuple(AGGREGATES))
    fields: dict[Where, FieldDefinition] = {("fields", field_name): field for field_name, field in state.fields.items()}
    if state.value is not None:
        fields["value",] = state.value
    for at, field in fields.items():
        yield from _check_aggregate(field, columns, allowed, state.kind, (*where, *at))
        if field.agg == "latest" and field.agg in allowed:
            yield from _check_latest(field, columns, (*key, state.user_key), (*where, *at))


def _check_name(name: str, where: Where) -> Iterator[Problem]:
    if name in ("", "default"):
        yield Problem(where, "expected a state name other than '' and 'default' (RocksDB's own column family)")
    elif name.startswith("_timer_state/"):
        yield Problem(where, "names that begin with _timer_state/ are those of timers")
    elif name == WINDOW_TIMERS or name.startswith(WINDOW_SET):
        yield Problem(where, f"{WINDOW_TIMERS} and names that begin with {WINDOW_SET} belong to session windows")
    yield from name_problems(name, where)


def _check_shape(state: StateDefinition, where: Where) -> Iterator[Problem]:
    if state.value is not None and state.fields:
        yield Problem(where, "expected either 'value' or 'fields', found both")
    elif state.value is None and not state.fields:
        wanted = "'value'" if state.kind in AGGREGATES_OF_KIND else "'value' or 'fields'"
        yield Problem(where, f"expected {wanted}: what the state holds")
    elif state.fields and state.kind in AGGREGATES_OF_KIND and state.function is None:
        yield Problem((*where, "fields"), f"a {state.kind} state takes one 'value' instead of fields")


def _check_user_key(state: StateDefinition, columns: Columns, where: Where) -> Iterator[Problem]:
    if state.kind == "map" and state.user_key is None:
        yield Problem(where, "a map state needs 'user_key': the column whose values are the map's keys")
    if state.user_key is None:
        return
    where = (*where, "user_key")
    if state.kind != "map":
        yield Problem(where, f"only a map state has one, not a {state.kind} state")
    elif state.user_key not in columns:
        yield not_declared(state.user_key, columns, where)
    elif not is_key_type(columns[state.user_key]):
        yield Problem(where, key_type_text(state.user_key, columns))


def _check_function(state: StateDefinition, key: Sequence[str], where: Where) -> Iterator[Problem]:
    if not is_reference(state.function or ""):
        yield Problem((*where, "function"), f"expected package.module:name, found {state.function!r}")
    if state.kind != "value":
        yield Problem((*where, "kind"), f"a function takes a value state, found a {state.kind} state")
    if state.value is not None:
        yield Problem((*where, "value"), "a state with a function has 'fields', each with its type")
    for name, field in state.fields.items():
        at = (*where, "fields", name)
        if name in key:
            yield Problem(at, "is also a key column: the function could not distinguish them")
        if field.type is None or field.agg is not None or field.where:
            yield Problem(at, "expected a type, as in 'flights: long': the function computes the field")
        else:
            yield from check_type(field.type, at)


def _check_aggregate(
    field: FieldDefinition, columns: Columns, allowed: Sequence[str], kind: str, where: Where
) -> Iterator[Problem]:
    if field.agg is None:
        problem = "a type alone is for states with a function; " if field.type else ""
        yield Problem(where, f"{problem}expected 'agg', one of {', '.join(allowed)}")
    elif field.agg not in AGGREGATES:
        meant = did_you_mean(field.agg, allowed)
        text = f"unknown aggregate {field.agg!r}{meant}; known are {', '.join(allowed)}"
        yield Problem((*where, "agg"), text)
    elif field.agg not in allowed:
        text = f"a {kind} state takes {', '.join(allowed)}, found {field.agg!r}"
        yield Problem((*where, "agg"), text)
    else:
        if field.type is not None:
            yield Problem((*where, "type"), "follows from the aggregate; leave it out")
        yield from _check_of(field, field.agg, columns, where)
        yield from _check_by(field, field.agg, columns, where)
        yield from _check_nulls(field, field.agg, where)
        yield from _check_bounds(field, field.agg, where)
        yield from _check_number(field, field.agg, where)
        yield from _check_where(field.where, columns, (*where, "where"))


def _check_of(field: FieldDefinition, agg: str, columns: Columns, where: Where) -> Iterator[Problem]:
    if field.of is None:
        if AGGREGATES[agg].column is ColumnRule.REQUIRED:
            yield Problem(where, f"{agg} needs 'of': the column it is computed from")
        return
    where = (*where, "of")
    if field.together or not field.columns:
        yield from _check_together(field, agg, where)
    for name in field.columns:
        if name not in columns:
            yield not_declared(name, columns, where)
            continue
        type_ = columns[name]
        if type_ is not None and not accepts(agg, type_):
            takes = ", ".join(AGGREGATES[agg].inputs)
            yield Problem(where, f"{agg} takes a column of type {takes}; {name} is {type_}")


def _check_together(field: FieldDefinition, agg: str, where: Where) -> Iterator[Problem]:
    """Yield the problem of an ``of`` with several columns, if it has one."""
    if not AGGREGATES[agg].takes_together:
        owners = _names("takes_together")
        yield Problem(where, f"{agg} takes one column; several columns of one event belong to {owners}")
    elif not field.together:
        yield Problem(where, "expected a column, or several in brackets, found none")
    elif len(set(field.together)) < len(field.together):
        yield Problem(where, f"expected each column once, found {', '.join(field.together)}")


def _check_nulls(field: FieldDefinition, agg: str, where: Where) -> Iterator[Problem]:
    where = (*where, "nulls")
    if field.nulls is not None and agg not in ("first", "last"):
        yield Problem(where, f"{agg} skips nulls; 'nulls' belongs to first and last")
    elif field.nulls is Nulls.SKIP and field.together:
        yield Problem(where, "several columns of one event keep their nulls; name one column in 'of' to skip them")


def _check_by(field: FieldDefinition, agg: str, columns: Columns, where: Where) -> Iterator[Problem]:
    where = (*where, "by")
    if not AGGREGATES[agg].takes_by:
        if field.by:
            yield Problem(where, f"{agg} has no order; 'by' belongs to {_names('takes_by')}")
        return
    if not field.by:
        yield Problem(where[:-1], f"{agg} needs 'by': the columns that order the events")
    elif agg == "decay":
        yield from _check_time(field.by, columns, where)
    else:
        yield from _check_order(field, columns, where)


def _check_order(field: FieldDefinition, columns: Columns, where: Where) -> Iterator[Problem]:
    """Yield the problems of columns that order events."""
    if len(set(field.by)) < len(field.by):
        yield Problem(where, f"expected each column once, found {', '.join(field.by)}")
    for name in field.by:
        if name not in columns:
            yield not_declared(name, columns, where)
        elif not is_ordered(columns, name):
            yield Problem(where, f"events are ordered by scalar columns; {name} is {columns[name]}")


def _check_time(by: Sequence[str], columns: Columns, where: Where) -> Iterator[Problem]:
    """Yield the problem of the order of ``decay``, which is one time."""
    if len(by) > 1:
        yield Problem(where, f"decay takes one time, found {', '.join(by)}")
    elif by[0] not in columns:
        yield not_declared(by[0], columns, where)
    elif columns[by[0]] not in (None, INSTANT, DATETIME):
        yield Problem(where, f"decay takes a time, instant or datetime; {by[0]} is {columns[by[0]]}")


def _check_number(field: FieldDefinition, agg: str, where: Where) -> Iterator[Problem]:
    """Yield the problems of ``n``, ``limit`` and ``half_life``."""
    wanted = AGGREGATES[agg].number
    for name, example in NUMBERS.items():
        given = getattr(field, name) is not None
        if given and name != wanted:
            owners = ", ".join(other for other, aggregate in AGGREGATES.items() if aggregate.number == name)
            yield Problem((*where, name), f"{agg} has none; it belongs to {owners}")
        elif not given and name == wanted and AGGREGATES[agg].number_required:
            yield Problem(where, f"{agg} needs '{name}': {example}")
    if field.half_life is not None and milliseconds(field.half_life) == 0:
        yield Problem((*where, "half_life"), "expected a duration of more than 0")


def _check_latest(
    field: FieldDefinition, columns: Columns, others: Sequence[str | None], where: Where
) -> Iterator[Problem]:
    """Yield the problems of the columns of ``latest``, which it takes without naming them. ``others``: those that it
    does not take."""
    if field.of is not None:
        yield Problem((*where, "of"), "latest takes all columns of the event; name some of them with last")
        return
    names = [name for name in columns if name not in (*others, *field.by)]
    if not names:
        yield Problem(where, "latest takes the columns besides the key and 'by', and there are none")
    for name in names:
        type_ = columns[name]
        if type_ is not None and not accepts("latest", type_):
            yield Problem(where, f"latest takes all columns; {name} is {type_}: name the others with last")


def _names(ability: str) -> str:
    """Return the aggregates with an ability as text."""
    return ", ".join(agg for agg, aggregate in AGGREGATES.items() if getattr(aggregate, ability))


def _check_bounds(field: FieldDefinition, agg: str, where: Where) -> Iterator[Problem]:
    if not AGGREGATES[agg].takes_bounds:
        if field.bounds:
            yield Problem((*where, "bounds"), f"{agg} has none; they belong to histogram")
    elif not field.bounds:
        yield Problem(where, f"{agg} needs 'bounds': ascending upper bounds, for example [0, 15, 60]")
    elif any(a >= b for a, b in pairwise(field.bounds)):
        bounds = ", ".join(f"{bound:g}" for bound in field.bounds)
        yield Problem((*where, "bounds"), f"expected ascending numbers, found {bounds}")


def _check_where(name: str, columns: Columns, where: Where) -> Iterator[Problem]:
    if name and name not in columns:
        yield not_declared(name, columns, where)
    elif name and columns[name] not in (None, BOOLEAN):
        text = f"expected a boolean column; {name} is {columns[name]}; compute one with 'expr' in source.columns"
        yield Problem(where, text)


def check_type(text: str, where: Where) -> Iterator[Problem]:
    """Yield the problem of a type whose values cannot be written, restored or exported."""
    try:
        problem = undeclarable(type_of(text))
    except StatelibError as error:
        problem = error.message
    if problem:
        yield Problem(where, problem)


def key_type_text(name: str, columns: Columns) -> str:
    """Return the text of the problem that a column's type cannot be a key type."""
    return f"column {name} is {columns[name]}, which cannot be a key; key types are {', '.join(KEY_TYPES)}"


def is_ordered(columns: Columns, name: str) -> bool:
    """Return whether events can be ordered by a column."""
    type_ = columns[name]
    return type_ is None or bool(decimal_digits(type_)) or (isinstance(type_, Scalar) and type_ != VOID)
