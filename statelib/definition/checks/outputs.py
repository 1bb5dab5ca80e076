"""Checks of the outputs of a pipeline file. Pure: they yield problems and never raise."""

from collections.abc import Collection, Iterator, Mapping

from statelib.definition.checks.names import name_problems
from statelib.definition.checks.source import check_column_type
from statelib.definition.parts.model import OutputDefinition
from statelib.definition.problems import Problem
from statelib.definition.published_columns import ROW_NUMBER


def check_outputs(
    outputs: Mapping[str, OutputDefinition], states: Collection[str], *, functions: bool
) -> Iterator[Problem]:
    """Yield the problems of the outputs. ``states``: the names of the states, which are other tables in a query.
    ``functions``: whether a state has a user function; nothing else emits rows."""
    where = ("outputs",)
    if outputs and not functions:
        yield Problem(where, "no state has a 'function', nothing else can emit rows")
    names = {state.lower(): f"state {state!r}" for state in states}
    for name, output in outputs.items():
        if not name:
            yield Problem((*where, name), "expected a name, found none")
        elif name.lower() in names:
            text = f"{names[name.lower()]} has this name: a query could not distinguish them"
            yield Problem((*where, name), text)
        names.setdefault(name.lower(), f"output {name!r}")
        yield from name_problems(name, (*where, name))
        if not output.columns:
            yield Problem((*where, name, "columns"), "expected at least one column")
        for column, text in output.columns.items():
            at = (*where, name, "columns", column)
            if column.lower() == ROW_NUMBER:
                yield Problem(at, "every output has a column of this name: choose another one")
            yield from check_column_type(text, at)
