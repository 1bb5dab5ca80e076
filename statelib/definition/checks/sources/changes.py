"""Checks of deletes and retractions: of a source's ``delete_when`` and ``changes``, and of the states that they change.
Pure: they yield problems and never raise."""

import re
from collections.abc import Iterator, Mapping, Sequence

from statelib.aggregates.kinds import RETRACTABLE, Nulls
from statelib.definition.checks.states.state import is_ordered
from statelib.definition.checks.states.time import not_declared
from statelib.definition.declared import DeclaredPipeline
from statelib.definition.parts.model import FieldDefinition, StateDefinition
from statelib.definition.parts.source import Source
from statelib.definition.parts.types import columns_of
from statelib.definition.problems import Problem, Where


def check_changes(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    """Yield the problems of ``delete_when``, ``changes`` and ``order_by``, and of states that take back no events."""
    for field, source in pipeline.inputs.items():
        yield from _check_source(source, tuple(field.split(".", 1)))
        if source.changes is not None:
            for name, state in pipeline.states.items():
                yield from _check_state(state, ("states", name), field, source)
    if pipeline.has_deletes:
        yield from _check_order(pipeline)
    elif pipeline.order_by:
        yield Problem(("order_by",), "has a meaning only with 'delete_when' in a source")


def _check_source(source: Source, where: Where) -> Iterator[Problem]:
    if source.delete_when is not None and not source.delete_when.strip():
        yield Problem((*where, "delete_when"), "expected a condition in SQL, found none")
    changes = source.changes
    if changes is None:
        return
    if source.delete_when is not None:
        yield Problem((*where, "changes"), "a source deletes keys or takes back events, found also 'delete_when'")
    if (changes.before is None) != (changes.after is None):
        yield Problem((*where, "changes"), "expected 'before' and 'after', or neither")
    sides = [side for side in (changes.before, changes.after) if side]
    yield from _check_elements(source.each, sides, (*where, "each"))
    # `after`.`status` and after['status'] are written as after.status.
    where_text = re.sub(r"\[\s*['\"](\w+)['\"]\s*\]", r".\1", (source.where or "").replace("`", ""))
    plain = [side.replace("`", "") for side in sides]
    named = [side for side in plain if re.search(rf"(?<![\w.]){re.escape(side)}\s*\.", where_text)]
    if len(named) == 1:
        text = "an update is left out as a whole, with the row that it replaces, if its rows differ in this field"
        hint = "compute a boolean column of 'row', and name it in 'where' of the aggregates"
        yield Problem((*where, "where"), f"is a condition on a field of {named[0]}: {text}; {hint}")


def _check_elements(each: Mapping[str, str], sides: Sequence[str], where: Where) -> Iterator[Problem]:
    """Yield a problem per list that is part of a row before or after a change. Its elements would be applied to both
    rows, and a change without this row would be lost."""
    for name, text in each.items():
        for side in sides:
            if re.search(rf"(?<![\w.]){re.escape(side)}(?!\w)", text):
                lost = "a change has a list before and another one after it, and only one of them would be read"
                yield Problem((*where, name), f"takes a list in {side}: {lost}; expected a list of whole changes")


def _check_order(pipeline: DeclaredPipeline) -> Iterator[Problem]:
    if not pipeline.order_by:
        text = "is missing: 'delete_when' needs the columns that order the events of a key, such as the log position"
        yield Problem(("order_by",), text)
    columns = columns_of(pipeline.declared_columns())
    for i, name in enumerate(pipeline.order_by):
        if name not in columns:
            yield not_declared(name, columns, ("order_by", i))
        elif not is_ordered(columns, name):
            yield Problem(("order_by", i), f"events are ordered by scalar columns; {name} is {columns[name]}")


def _check_state(state: StateDefinition, where: Where, field: str, source: Source) -> Iterator[Problem]:
    """Yield the problems of a state that the changes of a source cannot be applied to exactly."""
    of_changes = f"{field} has 'changes', which take back events"
    if state.function is not None:
        text = f"{of_changes}: a function takes none back; read the operation as a column of it instead"
        yield Problem((*where, "function"), text)
    if state.window is not None:
        yield Problem((*where, "window"), f"{of_changes}: a window that is closed takes none back")
    if state.ttl is not None:
        yield Problem((*where, "ttl"), f"{of_changes}: an entry that has expired takes none back")
    fields = state.fields.items() if state.value is None else [("", state.value)]
    for name, each in fields:
        changed = [column for column in _deciding(each) if column in source.columns]
        if each.agg is not None and each.agg not in RETRACTABLE and changed:
            inner = ("fields", name, "agg") if name else ("value", "agg")
            text = f"{each.agg} cannot take one back; {', '.join(sorted(RETRACTABLE))} can"
            yield Problem((*where, *inner), f"{of_changes}: {text}")


def _deciding(field: FieldDefinition) -> tuple[str, ...]:
    """Return the columns of which an aggregate needs a value to apply an event."""
    by_alone = field.of is None or field.together or field.nulls is Nulls.KEEP
    return (*field.columns, *field.by) if by_alone else field.columns
