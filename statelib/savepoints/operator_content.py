"""Operator state of a snapshot, put together from what its subtasks hold."""

from collections.abc import Callable, Iterable, Iterator

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
"""(operator, state, its serialized parts) -> lines."""


def operator_contents(opened: Checkpoint, operator: OperatorState) -> tuple[OperatorStateContent, ...]:
    """Each operator state once: the elements of all subtasks in their order, or a broadcast state's first copy.

    Raises CorruptStateError, NotFoundError (``missing-file``), UnsupportedError (``unknown-serializer``)."""
    parts: dict[str, list[OperatorStateContent]] = {}
    for stream in _streams(opened, operator):
        for content in stream.contents():
            parts.setdefault(content.descriptor.name, []).append(content)
    return tuple(_whole(held) for held in parts.values())


def _streams(opened: Checkpoint, operator: OperatorState) -> Iterator[OperatorStream]:
    """That of each subtask; what goes wrong while it is looked at names it."""
    reader = opened.reader()
    for subtask, state in operator.subtasks:
        if state.operator is not None:
            with located(f"{opened.directory}: operator state of {opened.operator_name(operator)}, subtask {subtask}"):
                yield OperatorStream(state.operator, reader.read(state.operator.stream))


def _whole(held: list[OperatorStateContent]) -> OperatorStateContent:
    descriptor = held[0].descriptor
    for content in held:
        if _described(content.descriptor) != _described(descriptor):
            raise UnsupportedError(
                f"operator state {descriptor.name!r}: some subtasks hold {_described(descriptor)}, others"
                f" {_described(content.descriptor)}",
                kind="mixed-serializers",
                hint="take a savepoint after every subtask has used the state",
            )
    if descriptor.mode is OperatorStateMode.BROADCAST:
        return held[0]
    return OperatorStateContent(descriptor, pa.concat_arrays([content.values for content in held]))


def _described(descriptor: OperatorStateDescriptor) -> str:
    key = f"{descriptor.key_type} to " if descriptor.key_type else ""
    return f"{descriptor.mode.name.lower()} of {key}{descriptor.value_type}"


def _stored_operator_states(
    opened: Checkpoint, operator: OperatorState
) -> Iterator[tuple[OperatorStateDescriptor, tuple[bytes, ...]]]:
    """As :func:`operator_contents`, but the serialized parts: nothing in them is lost or refused."""
    parts: dict[OperatorStateDescriptor, list[tuple[bytes, ...]]] = {}
    for stream in _streams(opened, operator):
        for descriptor in stream.descriptors:
            parts.setdefault(descriptor, []).append(stream.stored(descriptor))
    for descriptor, held in parts.items():
        broadcast = descriptor.mode is OperatorStateMode.BROADCAST
        yield descriptor, held[0] if broadcast else tuple(part for found in held for part in found)


def operator_counts(opened: Checkpoint, operator: OperatorState) -> list[tuple[OperatorStateDescriptor, int]]:
    """How many elements each operator state has, or entries; raises as :func:`_stored_operator_states`."""
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
    skip: Callable[[str], None] | None = None,
) -> Iterator[str]:
    """Every element of operator state as a line of JSON, of every operator unless one is selected. ``skip`` receives
    why state cannot be written as text, and the rest goes on; without it, that is raised.

    Raises CorruptStateError, NotFoundError (``missing-file``), UnsupportedError (``unknown-serializer``)."""
    for operator in opened.operators:
        if opened.selected in (None, operator.operator_id):
            for descriptor, parts in _stored_or_skipped(opened, operator, skip):
                if state in (None, descriptor.name):
                    name = opened.operator_name(operator)
                    lines = lines_of(name, descriptor, parts)
                    yield from _past(lines, f"{opened.directory}: operator state of {name}", skip)


def _stored_or_skipped(
    opened: Checkpoint, operator: OperatorState, skip: Callable[[str], None] | None
) -> Iterator[tuple[OperatorStateDescriptor, tuple[bytes, ...]]]:
    try:
        yield from list(_stored_operator_states(opened, operator))
    except UnsupportedError as error:
        if skip is None:
            raise
        skip(error.message)


def _past(lines: Iterator[str], where: str, skip: Callable[[str], None] | None) -> Iterator[str]:
    """The lines up to where they cannot be written any more."""
    try:
        with located(where):
            yield from lines
    except UnsupportedError as error:
        if skip is None:
            raise
        skip(error.message)


def unreadable(opened: Checkpoint) -> list[str]:
    """What is wrong with the operator state of a snapshot. What only a user's serializer can read is not."""
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
    """What a snapshot holds besides the state that can be read, for people; statelib itself writes none of it."""
    told = []
    for operator in opened.operators:
        name, states = opened.operator_name(operator), [state for _, state in operator.subtasks]
        buffers = sum(state.channel_handles for state in states)
        if buffers:
            size = sum(state.channel_bytes for state in states)
            told.append(
                f"{name}: {number_of(buffers, 'handle')} of records in flight, {number_of(size, 'byte')} (an"
                " unaligned checkpoint), not read"
            )
        raw = sum(state.raw_operator is not None for state in states)
        if raw:
            told.append(f"{name}: raw operator state of {number_of(raw, 'subtask')}, which only its own code can read")
        if operator.coordinator is not None:
            told.append(
                f"{name}: state of its coordinator, {number_of(operator.coordinator.size_bytes, 'byte')}, opaque"
            )
    return told
