"""Checks of the operator states of a pipeline file. Pure: they yield problems and never raise."""

from collections.abc import Iterator, Mapping, Sequence

from statelib.definition.checks.names import name_problems
from statelib.definition.checks.states.state import check_type
from statelib.definition.checks.states.time import is_reference
from statelib.definition.parts.model import Hooks, OperatorStateDefinition
from statelib.definition.parts.types import KEY_TYPES
from statelib.definition.problems import Problem, Where
from statelib.formats.manifest.trailer import OWN_STATE_PREFIX

MAX_STATES = 1000


def check_operator_states(states: Mapping[str, OperatorStateDefinition], functions: bool) -> Iterator[Problem]:
    """Yield the problems of the operator states. ``functions``: whether there is a user function or a hook; nothing
    else can use operator state."""
    where = ("operator_states",)
    if states and not functions:
        yield Problem(where, "no state has a 'function' and there are no 'hooks', nothing else can use operator state")
    if len(states) > MAX_STATES:
        yield Problem(where, f"expected at most {MAX_STATES}, found {len(states)}")
    for name, state in states.items():
        if not name or name.startswith(OWN_STATE_PREFIX):
            yield Problem((*where, name), f"expected a name that does not start with {OWN_STATE_PREFIX!r}")
        yield from name_problems(name, (*where, name))
        yield from _check_members(state, (*where, name))


def check_side_data(names: Sequence[str], functions: bool) -> Iterator[Problem]:
    """Yield the problems of the names of side data. ``functions``: as for :func:`check_operator_states`."""
    where = ("side_data",)
    if names and not functions:
        yield Problem(where, "no state has a 'function' and there are no 'hooks', nothing else can use side data")
    if len(names) > MAX_STATES:
        yield Problem(where, f"expected at most {MAX_STATES}, found {len(names)}")
    for i, name in enumerate(names):
        if not name or name in names[:i]:
            yield Problem((*where, i), f"expected each name once, and none empty: found {name!r}")
        if name.startswith(OWN_STATE_PREFIX):
            yield Problem((*where, i), f"expected a name that does not start with {OWN_STATE_PREFIX!r}")
        yield from name_problems(name, (*where, i))


def check_hooks(hooks: Hooks) -> Iterator[Problem]:
    for name, reference in hooks:
        if reference is not None and not is_reference(reference):
            yield Problem(("hooks", name), f"expected package.module:name, found {reference!r}")


def _check_members(state: OperatorStateDefinition, where: Where) -> Iterator[Problem]:
    wanted = ("key", "value") if state.mode == "broadcast" else ("element",)
    for member in ("element", "key", "value"):
        text: str | None = getattr(state, member)
        if member not in wanted:
            if text is not None:
                yield Problem((*where, member), f"a {state.mode} state has {' and '.join(wanted)} instead")
        elif text is None:
            yield Problem(where, f"a {state.mode} state needs {member!r}: a type")
        elif member == "key" and text not in KEY_TYPES:
            yield Problem((*where, member), f"expected one of {', '.join(KEY_TYPES)}, found {text!r}")
        else:
            yield from check_type(text, (*where, member))
