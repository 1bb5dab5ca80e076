"""Restoring operator state from old handles, which are already limited to the elements of this subtask."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from statelib.backends.operator.emitted_rows import EmittedRows
from statelib.backends.operator.side_data import SideData
from statelib.backends.operator.state import OperatorStateBackend
from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.formats.operator_state import OperatorStateContent, OperatorStream
from statelib.formats.source_position import OWN_STATES
from statelib.model.handles import OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.types import BIGDECIMAL, Decimal, ListOf, MapOf, Row, StateType, Tuple, parts_of, with_parts
from statelib.restore.schemas.matching import as_stored, changed
from statelib.restore.schemas.migration import converted
from statelib.storage.ports.views import StateReader


@dataclass(frozen=True)
class OperatorRestoreSource:
    """One old stream and the elements of it that are wanted. ``dropped`` holds the names of its states that are not
    restored. Picklable."""

    handle: OperatorStreamStateHandle
    reader: StateReader
    dropped: frozenset[str] = frozenset()

    def open(self) -> OperatorStream:
        """Read the stream. Raise CorruptStateError and what the reader raises."""
        return OperatorStream(self.handle, self.reader.read(self.handle.stream))


@dataclass(frozen=True)
class OperatorEvolution:
    """The result of comparing the declared operator states with the stored ones.

    ``restored`` and ``new`` are the names of declared states that continue or start empty. ``undeclared`` are stored
    states that the pipeline does not have. ``changed`` are pairs (declared, stored) that differ. A state that only some
    subtasks stored counts as stored."""

    restored: tuple[str, ...]
    new: tuple[str, ...]
    undeclared: tuple[OperatorStateDescriptor, ...]
    changed: tuple[tuple[OperatorStateDescriptor, OperatorStateDescriptor], ...]

    def check(self, *, allow_non_restored: bool) -> None:
        """Raise InvalidRequestError unless every stored state is restored or dropping state is allowed.

        The error is ``state-schema-changed`` with the declared and the stored state, or ``non-restored-state`` with the
        states that would be dropped."""
        if allow_non_restored:
            return
        for declared, stored in self.changed:
            raise changed(
                f"operator state {stored.name!r}",
                str(declared),
                str(stored),
                hint="give the changed state another name; 'allow_non_restored_state: true' drops what is stored",
            )
        if self.undeclared:
            states = ", ".join(f"{state.name!r} ({state})" for state in self.undeclared)
            raise InvalidRequestError(
                f"stored operator state {states}: the pipeline has no such state",
                kind="non-restored-state",
                hint="'allow_non_restored_state: true' in the pipeline file drops it",
            )

    @property
    def dropped(self) -> frozenset[str]:
        """The names of the stored states that are not restored."""
        return frozenset(state.name for state in (*self.undeclared, *(stored for _, stored in self.changed)))

    def resolutions(self) -> tuple[str, ...]:
        """Return one line per declared state."""
        restored = (f"operator state {name!r}: goes on" for name in self.restored)
        new = (f"operator state {name!r}: new: starts empty" for name in self.new)
        emptied = (f"operator state {now.name!r}: starts empty as {now}" for now, _ in self.changed)
        return (*restored, *new, *emptied)

    def non_restored(self) -> tuple[str, ...]:
        """Return one line per stored state that is not restored."""
        stored = (*self.undeclared, *(state for _, state in self.changed))
        return tuple(f"operator state {state.name!r} ({state})" for state in stored)


def evolve_operator(
    wanted: Sequence[OperatorStateDescriptor],
    streams: Iterable[OperatorStream],
    recorded: Sequence[OperatorStateDescriptor] = (),
) -> OperatorEvolution:
    """Compare the wanted states with the states in all ``streams`` of one operator. ``recorded``: the states that the
    manifest has of it, with the names of their fields. Raise CorruptStateError."""
    declared = {state.name: state for state in wanted}
    named = {state.name: state for stream in streams for state in stream.descriptors}
    named |= {state.name: state for state in recorded if _same_form(state, named.get(state.name))}
    stored = {name: state for name, state in named.items() if name not in OWN_STATES}
    common = [(declared[name], state) for name, state in stored.items() if name in declared]
    differing = tuple(
        (now, state)
        for now, state in common
        if not _same_form(now, state) or (state in recorded and _has_moved_fields(state, now))
    )
    differing_names = {state.name for _, state in differing}
    return OperatorEvolution(
        tuple(name for name in declared if name in stored and name not in differing_names),
        tuple(name for name in declared if name not in stored),
        tuple(state for name, state in stored.items() if name not in declared),
        differing,
    )


def restore_operator(
    descriptors: Sequence[OperatorStateDescriptor],
    sources: Iterable[OperatorRestoreSource],
    side_data: Iterable[SideData] = (),
    emitted: EmittedRows | None = None,
) -> OperatorStateBackend:
    """Return a backend with the described states, which hold the elements of all sources, with ``side_data``, and with
    ``emitted`` for the rows of outputs.

    Raise CorruptStateError, InvalidRequestError (``state-schema-changed``, ``non-restored-state``)."""
    backend = OperatorStateBackend(descriptors, side_data, emitted)
    for source in sources:
        stream = source.open()
        evolution = evolve_operator(descriptors, [stream])
        evolution.check(allow_non_restored=evolution.dropped <= source.dropped)
        for name in (name for name in evolution.restored if name not in source.dropped):
            state = backend.state(name)
            state.load(_content(stream, state.descriptor))
    return backend


def _content(stream: OperatorStream, declared: OperatorStateDescriptor) -> OperatorStateContent:
    """Return the content of a state in its declared types. A stream does not say how many digits its decimals have.

    Raise CorruptStateError, InvalidRequestError (``state-schema-changed``) for a decimal that does not fit."""
    try:
        return stream.read(declared)
    except CorruptStateError as error:
        if error.kind != "bad-decimal":
            raise
    value_type, key_type = _of_any_digits(declared.value_type), declared.key_type and _of_any_digits(declared.key_type)
    content = stream.read(OperatorStateDescriptor(declared.name, declared.mode, value_type, key_type))
    keys = content.keys
    try:
        values = converted(content.values, value_type, declared.value_type)
        if key_type is not None and declared.key_type is not None:
            keys = converted(keys, key_type, declared.key_type)
    except InvalidRequestError as error:
        text = f"operator state {declared.name!r}: {error.message}"
        raise InvalidRequestError(text, kind=error.kind, hint=error.hint) from error
    return OperatorStateContent(declared, values, keys)


def _of_any_digits(type_: StateType) -> StateType:
    """Return a type that reads all decimals that a stream may have in place of this type. The keys of maps are fixed,
    as those of keyed state are."""
    match type_:
        case Decimal():
            return BIGDECIMAL
        case MapOf(key, value):
            return MapOf(key, _of_any_digits(value))
        case Row() | ListOf() | Tuple():
            return with_parts(type_, tuple(map(_of_any_digits, parts_of(type_))))
    return type_


def _same_form(one: OperatorStateDescriptor, other: OperatorStateDescriptor | None) -> bool:
    """Return whether two states differ in nothing but the names of Row fields, which streams do not store."""
    return other is not None and (one.mode, *map(as_stored, _types(one))) == (
        other.mode,
        *map(as_stored, _types(other)),
    )


def _has_moved_fields(stored: OperatorStateDescriptor, declared: OperatorStateDescriptor) -> bool:
    """Return whether a field has the name that another place of the same Row has in the stored state."""
    return any(map(_moved, _types(stored), _types(declared)))


def _moved(stored: StateType, declared: StateType) -> bool:
    if isinstance(stored, Row) and isinstance(declared, Row):
        names = [field.name for field in stored.fields]
        if any(new.name in names and new.name != old for old, new in zip(names, declared.fields, strict=True)):
            return True
    return any(map(_moved, parts_of(stored), parts_of(declared)))


def _types(descriptor: OperatorStateDescriptor) -> tuple[StateType, ...]:
    """Return the type of the values and, of broadcast state, the type of the keys."""
    return (descriptor.value_type, *([descriptor.key_type] if descriptor.key_type else []))
