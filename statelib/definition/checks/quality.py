"""Checks of ``checks:`` in a pipeline file: the names in it exist, and the parameters of expectations fit."""

from collections.abc import Iterator, Mapping

from statelib.definition.declared import DeclaredPipeline
from statelib.definition.expectations import (
    COLUMN,
    COLUMNS,
    EXPECTATIONS,
    SEVERAL,
    VALUES,
    parameter_problem,
    problems_together,
)
from statelib.definition.frame_columns import FrameColumn, frame_columns
from statelib.definition.parts.quality import Checks, Expectation
from statelib.definition.problems import Problem, Where, did_you_mean
from statelib.errors import StatelibError
from statelib.model.types import STRING, ArrayOf, ListOf, MapOf, ObjectArray, Pojo, SetOf, StateType, Tuple

Frames = Mapping[str, Mapping[str, FrameColumn]]
"""Columns by state and name."""
PREFIX = "expect_"


def check_checks(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield the problems of ``checks:``. The states of the pipeline must have no problems, because their columns follow
    from them."""
    checks = pipeline.checks
    if checks == Checks():
        return
    try:
        frames = _columns_by_state(pipeline)
    except StatelibError:
        return
    for what, rules in (("null_rate", checks.drift.null_rate), ("distribution", checks.drift.distribution)):
        for name in rules:
            yield from _check_field(name, frames, ("checks", "drift", what, name), scalar=what == "distribution")
    earlier = set()
    for i, expectation in enumerate(checks.expectations):
        where: Where = ("checks", "expectations", i)
        yield from _check_expectation(expectation, frames, where)
        if (expectation.state, expectation.describe()) in earlier:
            yield Problem(where, f"{expectation.describe()} is given twice")
        earlier.add((expectation.state, expectation.describe()))


def _columns_by_state(pipeline: DeclaredPipeline) -> Frames:
    """Return the columns that checks may name: those of the states in the file, without timers."""
    schema = pipeline.schema()
    return {
        name: {column.name: column for column in frame_columns(pipeline.key, schema.key_type, schema.state(name))}
        for name in pipeline.states
    }


def split_field(name: str, states: Mapping[str, object]) -> tuple[str, str]:
    """Return state and column of ``<state>.<column>``, ('', '') if no state fits. Both may contain dots."""
    dots = [i for i, letter in enumerate(name) if letter == "."]
    fitting = [(name[:i], name[i + 1 :]) for i in dots if name[:i] in states]
    return max(fitting, key=lambda pair: len(pair[0]), default=("", ""))


def _check_field(name: str, frames: Frames, where: Where, *, scalar: bool) -> Iterator[Problem]:
    state, column = split_field(name, frames)
    if not state:
        fields = [f"{s}.{c}" for s, columns in frames.items() for c in columns]
        yield Problem(where, f"expected <state>.<column>{did_you_mean(name, fields)}; states are {', '.join(frames)}")
    elif column not in frames[state]:
        yield _unknown_column(column, state, frames, where)
    elif scalar and _is_composite(frames[state][column].type):
        yield Problem(
            where, f"column {column!r} is {frames[state][column].type}: only single values have a distribution"
        )


def _is_composite(type_: StateType) -> bool:
    return isinstance(type_, ListOf | ArrayOf | ObjectArray | SetOf | MapOf | Tuple | Pojo)


def _check_expectation(expectation: Expectation, frames: Frames, where: Where) -> Iterator[Problem]:
    name = expectation.expect
    signature = EXPECTATIONS.get(name)
    if signature is None:
        meant = did_you_mean(name.removeprefix(PREFIX), EXPECTATIONS)
        yield Problem((*where, "expect"), f"unknown expectation {name!r}{meant}; docs/gate.md lists all")
    if expectation.state not in frames:
        meant = did_you_mean(expectation.state, frames)
        yield Problem((*where, "state"), f"unknown state {expectation.state!r}{meant}; states are {', '.join(frames)}")
    if signature is None:
        return
    given = expectation.parameters
    yield from (Problem(where, problem) for problem in problems_together(name, given))
    for parameter, value in given.items():
        form = signature.parameters.get(parameter)
        path = (*where, parameter)
        if form is None:
            meant = did_you_mean(parameter, signature.parameters)
            takes = ", ".join(signature.parameters) or "none"
            yield Problem(path, f"unknown parameter of {name}{meant or f', it takes {takes}'}")
        elif problem := parameter_problem(form, value):
            yield Problem(path, problem)
        elif expectation.state in frames:
            yield from _check_content(form, value, expectation, frames, path)


def _check_content(
    form: str, value: object, expectation: Expectation, frames: Frames, where: Where
) -> Iterator[Problem]:
    if form in (COLUMN, COLUMNS, SEVERAL):
        yield from _check_columns(value, expectation, frames, where)
    elif form == VALUES:
        yield from _check_values(value, frames[expectation.state].get(str(expectation.parameters.get("column"))), where)


def _check_values(values: object, column: FrameColumn | None, where: Where) -> Iterator[Problem]:
    """Yield the problem of a value that no text of the column equals, such as YAML's NO, which is the boolean false."""
    assert isinstance(values, list | tuple)
    others = [value for value in values if not (value is None or isinstance(value, str))]
    if column is not None and column.type == STRING and others:
        text = f"column {column.name!r} is {column.type}: expected texts, found {others[0]!r:.40}; put it in quotes"
        yield Problem(where, text)


def _check_columns(value: object, expectation: Expectation, frames: Frames, where: Where) -> Iterator[Problem]:
    """Yield the problems of the columns that an expectation names. Great Expectations takes a list or another value of
    several parts for its text."""
    names = [value] if isinstance(value, str) else value
    assert isinstance(names, list | tuple)
    columns, only_nulls = frames[expectation.state], "null" in expectation.expect.split("_")
    for name in map(str, names):
        if name not in columns:
            yield _unknown_column(name, expectation.state, frames, where)
        elif _is_composite(columns[name].type) and not only_nulls:
            text = f"column {name!r} is {columns[name].type}: an expectation can only be about its nulls"
            yield Problem(where, f"{text}, such as column_values_to_not_be_null")


def _unknown_column(column: str, state: str, frames: Frames, where: Where) -> Problem:
    columns = frames[state]
    return Problem(
        where, f"state {state} has no column {column!r}{did_you_mean(column, columns)}; it has {', '.join(columns)}"
    )
