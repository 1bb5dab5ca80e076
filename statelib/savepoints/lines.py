"""The export of a snapshot's state as lines of JSON."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.formats.text import natural_json, typed_json
from statelib.model.handles import ChangelogStateBackendHandleImpl, KeyGroupsStateHandle
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.model.types import Opaque, Pojo, StateType, parts_of
from statelib.savepoints.opened import Checkpoint, located
from statelib.savepoints.operator_content import OperatorLines, Skip, export_operator_lines, skipping
from statelib.serializers.entries.rows import StateRows


@dataclass(frozen=True)
class LineFormat:
    """The two functions that write state as lines: one for entries of keyed state, one for elements of operator
    state."""

    entries: Callable[[str, KeyedStateSchema, StateDescriptor, StateRows], Iterator[str]]
    operator: OperatorLines


TYPED = LineFormat(typed_json.entry_lines, typed_json.operator_lines)
LINE_FORMATS = {"typed-jsonl": TYPED, "jsonl": LineFormat(natural_json.entry_lines, natural_json.operator_lines)}

_WITHOUT_LENGTHS = (KeyGroupsStateHandle, ChangelogStateBackendHandleImpl)
"""The handles of streams in which only decoding shows where a value ends."""


def export_all_lines(
    opened: Checkpoint,
    state: str | None,
    scratch: str | None = None,
    form: LineFormat = TYPED,
    skip: Skip | None = None,
) -> Iterator[str]:
    """Yield the lines of :func:`export_lines`, followed by one line per element of operator state. Arguments and errors
    are those of :func:`export_lines`.

    If an operator state has the name ``state``, no keyed state is exported."""
    operator_state_names = {
        s[0] for o in opened.operators for _, held in o.subtasks if held.operator for s in held.operator.states
    }
    if state not in operator_state_names:
        yield from export_lines(opened, state, scratch, form, skip)
    yield from export_operator_lines(opened, state, form.operator, skip)


def export_lines(
    opened: Checkpoint,
    state: str | None,
    scratch: str | None = None,
    form: LineFormat = TYPED,
    skip: Skip | None = None,
) -> Iterator[str]:
    """Yield one line of JSON per entry of keyed state: of the selected operator, or of all operators if none is
    selected.

    ``state``: the name of the only state to export; None exports all. ``scratch``: the directory for temporary copies.
    ``skip``: called with a message for state that cannot be written as text; the export then continues with the next
    state.

    Raises InvalidRequestError (``unknown-state``) before the first line. Without ``skip``, raises UnsupportedError for
    state that cannot be written as text: before the first line if its type is unknown."""
    parts = [part for part in opened.each_operator() if opened.selected in (None, part.selected)]
    schemas = [(part, part.schema()) for part in parts if _is_readable(part, skip)]
    if state is not None:
        schemas = _with_state(schemas, state)
    for part, schema in schemas:
        operator = part.operator_name(part.keyed_operator())
        for name in _passes(part, schema, state, skip):
            with skipping(skip, [name] if name else [s.name for s in schema.states], operator):
                yield from _lines_of(part, schema, name, scratch, form=form, skip=skip)


def _lines_of(
    part: Checkpoint,
    schema: KeyedStateSchema,
    state: str | None,
    scratch: str | None,
    *,
    form: LineFormat,
    skip: Skip | None,
) -> Iterator[str]:
    """Yield the lines of one state, or of all; with ``skip``, those of a state end at the first that cannot be
    written."""
    operator, ended = part.operator_name(part.keyed_operator()), set[str]()
    for descriptor, rows in part.entries(state, scratch):
        name = descriptor.name
        if name not in ended:
            ended.add(name)
            with located(f"{part.directory}: state {name}"), skipping(skip, [name], operator):
                yield from form.entries(operator, schema, descriptor, rows)
                ended.remove(name)
        if state in ended:
            return


def _is_readable(part: Checkpoint, skip: Skip | None) -> bool:
    """Return whether the names and types of the operator's states can be read; pass the reason to ``skip`` if not."""
    try:
        part.schema()
    except UnsupportedError as error:
        if skip is None:
            raise
        skip(error.message)
        return False
    return True


def _passes(part: Checkpoint, schema: KeyedStateSchema, state: str | None, skip: Skip | None) -> Sequence[str | None]:
    """Return the states to read, one per pass over the entries; None stands for all states in one pass. In a stream
    without lengths, a value that only a user's class can read prevents reading the states behind it. If there may be
    such values and ``skip`` is given, each state has a pass of its own."""
    if skip is None or state is not None or not any(isinstance(handle, _WITHOUT_LENGTHS) for handle in part.handles()):
        return [state]
    types = [t for s in schema.states for t in (s.value_type, s.user_key_type, s.namespace_type) if t is not None]
    return [s.name for s in schema.states] if any(map(_may_have_no_end, (schema.key_type, *types))) else [None]


def _may_have_no_end(kind: StateType) -> bool:
    """Return whether a value of the type may have a part that only a user's class can read."""
    return isinstance(kind, Opaque | Pojo) or any(map(_may_have_no_end, parts_of(kind)))


def _with_state(
    schemas: list[tuple[Checkpoint, KeyedStateSchema]], state: str
) -> list[tuple[Checkpoint, KeyedStateSchema]]:
    """Return the operators that have a state of that name. Raises InvalidRequestError (``unknown-state``)."""
    with_state = [(part, schema) for part, schema in schemas if state in {s.name for s in schema.states}]
    if not with_state:
        names = sorted({s.name for _, schema in schemas for s in schema.states})
        raise InvalidRequestError(
            f"state {state!r} is not in the snapshot: known states are {', '.join(names) or 'none'}",
            kind="unknown-state",
        )
    return with_state
