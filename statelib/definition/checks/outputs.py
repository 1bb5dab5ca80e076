"""Checks of the outputs of a pipeline file. Pure: they yield problems and never raise."""

from collections.abc import Iterator

from statelib.definition.checks.names import alike, name_problems
from statelib.definition.checks.sources.source import check_column_type
from statelib.definition.declared import DeclaredPipeline
from statelib.definition.parts.model import OutputDefinition
from statelib.definition.problems import Problem, Where, did_you_mean
from statelib.definition.published_columns import ROW_NUMBER


def check_outputs(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield the problems of the outputs."""
    names = {state.lower(): f"state {state!r}" for state in pipeline.states}
    for name, output in pipeline.outputs.items():
        where = ("outputs", name)
        if not name:
            yield Problem(where, "expected a name, found none")
        elif name.lower() in names:
            yield Problem(where, f"{names[name.lower()]} has this name: a query could not distinguish them")
        names.setdefault(name.lower(), f"output {name!r}")
        yield from name_problems(name, where)
        if (output.closed is None) is not bool(output.columns):
            yield Problem(where, "expected 'columns' with at least one column, or 'closed' with a state")
        elif output.closed is None:
            yield from _check_emitted(pipeline, output, where)
        else:
            yield from _check_closed(pipeline, output.closed, (*where, "closed"))


def _check_emitted(pipeline: DeclaredPipeline, output: OutputDefinition, where: Where) -> Iterator[Problem]:
    if all(state.function is None for state in pipeline.states.values()):
        yield Problem(where, "no state has a 'function', nothing else can emit such rows")
    for earlier, column in alike(output.columns):
        text = f"column {earlier!r} has this name: a query could not distinguish them"
        yield Problem((*where, "columns", column), text)
    for column, text in output.columns.items():
        at = (*where, "columns", column)
        if column.lower() == ROW_NUMBER:
            yield Problem(at, "every output has a column of this name: choose another one")
        yield from check_column_type(text, at)


def _check_closed(pipeline: DeclaredPipeline, name: str, where: Where) -> Iterator[Problem]:
    state = pipeline.states.get(name)
    if state is None:
        meant = did_you_mean(name, pipeline.states)
        yield Problem(where, f"no state {name!r}{meant}; states are {', '.join(pipeline.states)}")
    elif state.window is None or state.window.session is None:
        yield Problem(where, f"only sessions are emitted when they are closed; state {name!r} has none")
    elif ROW_NUMBER in map(str.lower, (*pipeline.key, *state.fields)):
        yield Problem(where, f"every output has a column {ROW_NUMBER!r}, and so has state {name!r}")
