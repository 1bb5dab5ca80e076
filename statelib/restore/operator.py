"""Restoring operator state from old handles, already cut down to what this subtask is given."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from statelib.backends.operator import OperatorStateBackend
from statelib.formats.operator_state import OperatorStream
from statelib.formats.source_position import SOURCE_POSITION
from statelib.model.handles import OperatorStreamStateHandle
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.restore.schemas import changed, without_field_names
from statelib.storage.views import StateReader


@dataclass(frozen=True)
class OperatorRestoreSource:
    """One old stream, and which of its elements are wanted. Picklable."""

    handle: OperatorStreamStateHandle
    reader: StateReader

    def open(self) -> OperatorStream:
        return OperatorStream(self.handle, self.reader.read(self.handle.stream))


def restore_operator(
    descriptors: Sequence[OperatorStateDescriptor], sources: Iterable[OperatorRestoreSource]
) -> OperatorStateBackend:
    """A backend with the states registered, holding what the sources say.

    Raises CorruptStateError, InvalidRequestError (``state-schema-changed``)."""
    backend = OperatorStateBackend(descriptors)
    for source in sources:
        stream = source.open()
        check_operator_states(descriptors, stream)
        for found in stream.descriptors:
            if found.name != SOURCE_POSITION.name:
                state = backend.state(found.name)
                state.load(stream.read(state.descriptor))
    return backend


def check_operator_states(wanted: Sequence[OperatorStateDescriptor], stream: OperatorStream) -> None:
    """Every stored state must be declared as it was; one that is new begins empty.

    Raises InvalidRequestError (``state-schema-changed``)."""
    known = {d.name: d for d in (*wanted, SOURCE_POSITION)}
    for found in stream.descriptors:
        declared = known.get(found.name)
        if declared is None or _stored_form(declared) != _stored_form(found):
            expected = "no such state" if declared is None else str(declared)
            raise changed(f"operator state {found.name!r}", expected, str(found))


def _stored_form(descriptor: OperatorStateDescriptor) -> OperatorStateDescriptor:
    key_type = None if descriptor.key_type is None else without_field_names(descriptor.key_type)
    return OperatorStateDescriptor(
        descriptor.name, descriptor.mode, without_field_names(descriptor.value_type), key_type
    )
