"""Export the state of a snapshot as lines of JSON."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.formats.text import natural_json, typed_json
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.savepoints.opened import Checkpoint, located
from statelib.savepoints.operator_content import OperatorLines, export_operator_lines
from statelib.serializers.jumps import holds_opaque
from statelib.serializers.rows import StateRows


@dataclass(frozen=True)
class LineFormat:
    """How entries of keyed state, and parts of operator state, become lines."""

    entries: Callable[[str, KeyedStateSchema, StateDescriptor, StateRows], Iterator[str]]
    operator: OperatorLines


TYPED = LineFormat(typed_json.entry_lines, typed_json.operator_lines)
LINE_FORMATS = {"typed-jsonl": TYPED, "jsonl": LineFormat(natural_json.entry_lines, natural_json.operator_lines)}


Skip = Callable[[str], None]
"""The receiver of why something cannot be written as text."""


def export_all_lines(
    opened: Checkpoint,
    state: str | None,
    scratch: str | None = None,
    form: LineFormat = TYPED,
    skip: Skip | None = None,
) -> Iterator[str]:
    """As :func:`export_lines`, then the elements of operator state. ``skip``: go on past state that cannot be written
    as text, and say here which and why; without it, UnsupportedError is raised."""
    operator_states = {
        s[0] for o in opened.operators for _, held in o.subtasks if held.operator for s in held.operator.states
    }
    if state not in operator_states:
        yield from export_lines(opened, state, scratch, form, skip)
    yield from export_operator_lines(opened, state, form.operator, skip)


def export_lines(
    opened: Checkpoint,
    state: str | None,
    scratch: str | None = None,
    form: LineFormat = TYPED,
    skip: Skip | None = None,
) -> Iterator[str]:
    """Every entry as a line of JSON, of every operator with keyed state unless one is selected.

    Raises InvalidRequestError (``unknown-state``), and UnsupportedError for types that are not known, before the
    first line, unless there is a ``skip`` as of :func:`export_all_lines`."""
    parts = [part for part in opened.each_operator() if opened.selected in (None, part.selected)]
    schemas = [(part, part.schema()) for part in parts if _is_readable(part, skip)]
    if state is not None:
        schemas = _with_state(schemas, state)
    for part, schema in schemas:
        for name in _passes(schema, state, skip):
            with _skipping(skip):
                yield from _lines_of(part, schema, name, scratch, form)


def _lines_of(
    part: Checkpoint, schema: KeyedStateSchema, state: str | None, scratch: str | None, form: LineFormat
) -> Iterator[str]:
    name = part.operator_name(part.keyed_operator())
    for descriptor, rows in part.entries(state, scratch):
        with located(f"{part.directory}: state {descriptor.name}"):
            yield from form.entries(name, schema, descriptor, rows)


def _is_readable(part: Checkpoint, skip: Skip | None) -> bool:
    with _skipping(skip):
        part.schema()
        return True
    return False


def _passes(schema: KeyedStateSchema, state: str | None, skip: Skip | None) -> Sequence[str | None]:
    """The states to be read in one pass each, None = all in one. Values that only a user's class can read may keep
    the others of a stream from being read: then each state is read for itself."""
    types = [t for s in schema.states for t in (s.value_type, s.user_key_type, s.namespace_type) if t is not None]
    apart = skip is not None and state is None and any(map(holds_opaque, (schema.key_type, *types)))
    return [s.name for s in schema.states] if apart else [state]


@contextmanager
def _skipping(skip: Skip | None) -> Iterator[None]:
    try:
        yield
    except UnsupportedError as error:
        if skip is None:
            raise
        skip(error.message)


def _with_state(
    schemas: list[tuple[Checkpoint, KeyedStateSchema]], state: str
) -> list[tuple[Checkpoint, KeyedStateSchema]]:
    found = [(part, schema) for part, schema in schemas if state in {s.name for s in schema.states}]
    if not found:
        known = sorted({s.name for _, schema in schemas for s in schema.states})
        raise InvalidRequestError(
            f"state {state!r} is not in the snapshot: known states are {', '.join(known) or 'none'}",
            kind="unknown-state",
        )
    return found
