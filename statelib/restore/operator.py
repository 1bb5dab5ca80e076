"""Restoring operator state from old handles, already cut down to what this subtask is given."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from statelib.backends.operator import OperatorStateBackend
from statelib.errors import InvalidRequestError
from statelib.formats.operator_state import OperatorStream
from statelib.formats.source_position import SOURCE_POSITION
from statelib.model.handles import OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.restore.schemas.matching import changed, without_field_names
from statelib.storage.views import StateReader


@dataclass(frozen=True)
class OperatorRestoreSource:
    """One old stream, and which of its elements are wanted. ``dropped``: names of its states that are left out.
    Picklable."""

    handle: OperatorStreamStateHandle
    reader: StateReader
    dropped: frozenset[str] = frozenset()

    def open(self) -> OperatorStream:
        return OperatorStream(self.handle, self.reader.read(self.handle.stream))


@dataclass(frozen=True)
class OperatorEvolution:
    """What becomes of operator states. ``restored``, ``new``: names of declared states that go on, or begin empty;
    ``undeclared``: stored states that the pipeline does not have; ``changed``: (declared, stored) where the two
    differ. A state that is stored by some subtasks only counts like any other."""

    restored: tuple[str, ...]
    new: tuple[str, ...]
    undeclared: tuple[OperatorStateDescriptor, ...]
    changed: tuple[tuple[OperatorStateDescriptor, OperatorStateDescriptor], ...]

    def check(self, *, allow_non_restored: bool) -> None:
        """Raise InvalidRequestError: ``state-schema-changed`` naming the state, what is declared and what is stored;
        ``non-restored-state`` naming the states that would be dropped."""
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
        """The names of the stored states that are left out, where that is allowed."""
        return frozenset(state.name for state in (*self.undeclared, *(stored for _, stored in self.changed)))

    def resolutions(self) -> tuple[str, ...]:
        """Return one line per declared state."""
        restored = (f"operator state {name!r}: goes on" for name in self.restored)
        new = (f"operator state {name!r}: new: starts empty" for name in self.new)
        emptied = (f"operator state {now.name!r}: starts empty as {now}" for now, _ in self.changed)
        return (*restored, *new, *emptied)

    def non_restored(self) -> tuple[str, ...]:
        """Return one line per stored state that is left out."""
        stored = (*self.undeclared, *(state for _, state in self.changed))
        return tuple(f"operator state {state.name!r} ({state})" for state in stored)


def evolve_operator(wanted: Sequence[OperatorStateDescriptor], streams: Iterable[OperatorStream]) -> OperatorEvolution:
    """Judge the states of all ``streams`` of one operator; raises CorruptStateError."""
    declared = {state.name: state for state in wanted}
    stored = {state.name: state for stream in streams for state in stream.descriptors}
    stored.pop(SOURCE_POSITION.name, None)
    common = [(declared[name], state) for name, state in stored.items() if name in declared]
    differing = tuple((now, state) for now, state in common if _stored_form(now) != _stored_form(state))
    differing_names = {state.name for _, state in differing}
    return OperatorEvolution(
        tuple(name for name in declared if name in stored and name not in differing_names),
        tuple(name for name in declared if name not in stored),
        tuple(state for name, state in stored.items() if name not in declared),
        differing,
    )


def restore_operator(
    descriptors: Sequence[OperatorStateDescriptor], sources: Iterable[OperatorRestoreSource]
) -> OperatorStateBackend:
    """A backend with the states registered, holding what the sources say.

    Raises CorruptStateError, InvalidRequestError (``state-schema-changed``, ``non-restored-state``)."""
    backend = OperatorStateBackend(descriptors)
    for source in sources:
        stream = source.open()
        evolution = evolve_operator(descriptors, [stream])
        evolution.check(allow_non_restored=evolution.dropped <= source.dropped)
        for name in evolution.restored:
            state = backend.state(name)
            state.load(stream.read(state.descriptor))
    return backend


def _stored_form(descriptor: OperatorStateDescriptor) -> OperatorStateDescriptor:
    key_type = None if descriptor.key_type is None else without_field_names(descriptor.key_type)
    return OperatorStateDescriptor(
        descriptor.name, descriptor.mode, without_field_names(descriptor.value_type), key_type
    )
