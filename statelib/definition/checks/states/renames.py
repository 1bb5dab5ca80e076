"""Checks of earlier names: each belongs to one present state or field. Pure: they yield problems and never raise."""

from collections.abc import Iterator, Mapping

from statelib.definition.parts.model import FieldDefinition, StateDefinition
from statelib.definition.problems import Problem, Where


def check_renames(states: Mapping[str, StateDefinition]) -> Iterator[Problem]:
    """Yield a problem for each earlier name that is also a present name or is given twice, because it is ambiguous."""
    yield from _check(("states",), "state", states)
    for name, state in states.items():
        yield from _check(("states", name, "fields"), "field", state.fields)
        if state.value is not None and state.value.renamed_from:
            yield Problem(("states", name, "value", "renamed_from"), "a value has no name; only states and fields do")


def _check(
    where: Where, noun: str, parts: Mapping[str, StateDefinition] | Mapping[str, FieldDefinition]
) -> Iterator[Problem]:
    taken: dict[str, str] = {}
    for name, part in parts.items():
        for former in part.renamed_from:
            at = (*where, name, "renamed_from")
            if former in parts:
                yield Problem(at, f"there is a {noun} {former!r} in this file")
            elif former in taken:
                yield Problem(at, f"{former!r} is an earlier name of {noun} {taken[former]!r} already")
            taken.setdefault(former, name)
