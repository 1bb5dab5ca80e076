"""The operator state of a snapshot, joined from the parts that its subtasks hold."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from statelib.errors import CorruptStateError, NotFoundError, UnsupportedError
from statelib.formats.operator_state import OperatorStateContent, OperatorStream
from statelib.formats.text.typed_json import operator_lines
from statelib.model.amounts import number_of
from statelib.model.checkpoint import OperatorState
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.savepoints.opened import Checkpoint, located
from statelib.wire.reader import Reader

OperatorLines = Callable[[str, OperatorStateDescriptor, Iterable[bytes]], Iterator[str]]
"""A function that returns the lines of an operator state: (name of the operator, descriptor, serialized parts) ->
lines."""

Skip = Callable[[str], None]
"""A function that receives a message when some state cannot be written as text."""


def operator_contents(opened: Checkpoint, operator: OperatorState) -> tuple[OperatorStateContent, ...]:
    """Return the content of each operator state of an operator: the elements of all subtasks in the order of the
    subtasks, or, for a broadcast state, the copy of the first subtask.

    Raises CorruptStateError, NotFoundError (``missing-file``), UnsupportedError (``unknown-serializer``,
    ``mixed-serializers``)."""
    parts: dict[str, list[OperatorStateContent]] = {}
    for stream in _streams(opened, operator):
        for content in stream.contents():
            parts.setdefault(content.descriptor.name, []).append(content)
    return tuple(_joined(contents) for contents in parts.values())


def _streams(opened: Checkpoint, operator: OperatorState) -> Iterator[OperatorStream]:
    """Yield the operator stream of each subtask. Errors while a stream is used name its subtask."""
    reader = opened.reader()
    for subtask, state in operator.subtasks:
        if state.operator is not None:
            with located(f"{opened.directory}: operator state of {opened.operator_name(operator)}, subtask {subtask}"):
                yield OperatorStream(state.operator, reader.read(state.operator.stream))


def _joined(contents: list[OperatorStateContent]) -> OperatorStateContent:
    """Return one content for the parts of all subtasks. Raises UnsupportedError (``mixed-serializers``)."""
    descriptor = contents[0].descriptor
    for content in contents:
        if _described(content.descriptor) != _described(descriptor):
            raise UnsupportedError(
                f"operator state {descriptor.name!r}: some subtasks hold {_described(descriptor)}, others"
                f" {_described(content.descriptor)}",
                kind="mixed-serializers",
                hint="take a savepoint after every subtask has used the state",
            )
    if descriptor.mode is OperatorStateMode.BROADCAST:
        return contents[0]
    return OperatorStateContent(descriptor, pa.concat_arrays([content.values for content in contents]))


def _described(descriptor: OperatorStateDescriptor) -> str:
    key = f"{descriptor.key_type} to " if descriptor.key_type else ""
    return f"{descriptor.mode.name.lower()} of {key}{descriptor.value_type}"


def _stored_operator_states(
    opened: Checkpoint, operator: OperatorState
) -> Iterator[tuple[OperatorStateDescriptor, tuple[bytes, ...]]]:
    """Yield each operator state with its serialized parts: those of all subtasks in the order of the subtasks, or, for
    a broadcast state, those of the first subtask. The parts are not decoded.

    Raises CorruptStateError, NotFoundError (``missing-file``), UnsupportedError (``unknown-serializer``)."""
    stored_parts: dict[OperatorStateDescriptor, list[tuple[bytes, ...]]] = {}
    for stream in _streams(opened, operator):
        for descriptor in stream.descriptors:
            stored_parts.setdefault(descriptor, []).append(stream.stored(descriptor))
    for descriptor, subtasks in stored_parts.items():
        broadcast = descriptor.mode is OperatorStateMode.BROADCAST
        yield descriptor, subtasks[0] if broadcast else tuple(part for parts in subtasks for part in parts)


def operator_counts(opened: Checkpoint, operator: OperatorState) -> list[tuple[OperatorStateDescriptor, int]]:
    """Return each operator state of an operator with the number of its elements; for a broadcast state, the number of
    its entries.

    Raises CorruptStateError, NotFoundError (``missing-file``)."""
    return [
        (descriptor, len(parts) if descriptor.key_type is None else _entries_of(descriptor, parts))
        for descriptor, parts in _stored_operator_states(opened, operator)
    ]


def _entries_of(descriptor: OperatorStateDescriptor, parts: tuple[bytes, ...]) -> int:
    return sum(Reader(part, f"state {descriptor.name!r}").count() for part in parts)


def export_operator_lines(
    opened: Checkpoint,
    state: str | None,
    lines_of: OperatorLines = operator_lines,
    skip: Skip | None = None,
) -> Iterator[str]:
    """Yield one line of JSON per element of operator state: of the selected operator, or of all operators if none is
    selected.

    ``state``: the name of the only state to export; None exports all. ``skip``: called with a message for state that
    cannot be written as text; the export then continues with the next state.

    Raises CorruptStateError, NotFoundError (``missing-file``); without ``skip``, UnsupportedError
    (``unknown-serializer``)."""
    for operator in opened.operators:
        if opened.selected in (None, operator.operator_id):
            name = opened.operator_name(operator)
            where = f"{opened.directory}: operator state of {name}"
            for descriptor, parts in _stored_or_skipped(opened, operator, state, skip):
                if state in (None, descriptor.name):
                    with skipping(skip, [descriptor.name], name), located(where):
                        yield from lines_of(name, descriptor, parts)


def _stored_or_skipped(
    opened: Checkpoint, operator: OperatorState, state: str | None, skip: Skip | None
) -> Iterator[tuple[OperatorStateDescriptor, tuple[bytes, ...]]]:
    """Yield the states of :func:`_stored_operator_states`. If a header cannot be read, all states of the operator are
    left out; their names are in the handles."""
    handles = [subtask.operator for _, subtask in operator.subtasks if subtask.operator is not None]
    names = list(dict.fromkeys(name for handle in handles for name, _, _ in handle.states if state in (None, name)))
    with skipping(skip if names else None, names, opened.operator_name(operator)):
        yield from list(_stored_operator_states(opened, operator))


@contextmanager
def skipping(skip: Skip | None, states: Sequence[str], operator: str) -> Iterator[None]:
    """Pass an UnsupportedError to ``skip``, with the names of the states that the export lacks, and end the block;
    without ``skip``, raise the error."""
    try:
        yield
    except UnsupportedError as error:
        if skip is None:
            raise
        noun = "state" if len(states) == 1 else "states"
        skip(f"{noun} {', '.join(map(repr, states))} of operator {operator}, wholly or in part: {error.message}")


def unreadable(opened: Checkpoint) -> list[str]:
    """Return one message per operator whose operator state is damaged or missing. State that only a user's serializer
    can read is not a problem."""
    problems = []
    for operator in opened.operators:
        try:
            operator_contents(opened, operator)
        except (CorruptStateError, NotFoundError) as error:
            problems.append(error.message)
        except UnsupportedError:
            continue
    return problems


def left_out(opened: Checkpoint) -> list[str]:
    """Return one message, for people to read, per kind of state in the snapshot that statelib does not read: records in
    flight, raw operator state and coordinator state. Only Flink writes such state."""
    messages = []
    for operator in opened.operators:
        name, states = opened.operator_name(operator), [state for _, state in operator.subtasks]
        buffers = sum(state.channel_handles for state in states)
        if buffers:
            size = sum(state.channel_bytes for state in states)
            messages.append(
                f"{name}: {number_of(buffers, 'handle')} of records in flight, {number_of(size, 'byte')} (an"
                " unaligned checkpoint), not read"
            )
        raw = sum(state.raw_operator is not None for state in states)
        if raw:
            messages.append(
                f"{name}: raw operator state of {number_of(raw, 'subtask')}, which only its own code can read"
            )
        if operator.coordinator is not None:
            messages.append(
                f"{name}: state of its coordinator, {number_of(operator.coordinator.size_bytes, 'byte')}, opaque"
            )
    return messages
