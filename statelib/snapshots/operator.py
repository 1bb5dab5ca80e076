"""Snapshot of operator state: deep copy in the synchronous part, one stream in the asynchronous one.

Source: requirements R116 to R121; flink-formats.md section 7.2 (DefaultOperatorStateBackendSnapshotStrategy).
"""

from dataclasses import dataclass

from statelib.backends.operator import OperatorStateBackend
from statelib.formats.operator_state import OperatorStateContent, encode_operator_state
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategy import CheckpointListener, SnapshotResult, empty_snapshot
from statelib.snapshots.uploads import Uploads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.views import CheckpointStreamFactory


@dataclass
class OperatorStateCopy:
    """The states of one moment."""

    contents: tuple[OperatorStateContent, ...]

    def release(self) -> None:
        self.contents = ()


class OperatorStateSnapshotStrategy(CheckpointListener):
    """A :class:`~statelib.snapshots.strategy.SnapshotStrategy` whose result has an ``operator`` handle."""

    description = "Asynchronous operator state snapshot"

    def __init__(self, backend: OperatorStateBackend, name: str = "", inline_bytes: int = 0) -> None:
        """``inline_bytes``: up to this size the stream becomes part of the handle, called ``name``, whatever the
        storage would do: a file for the few bytes of a source position is not worth its round trip."""
        self._backend = backend
        self._name = name
        self._inline_bytes = inline_bytes

    def prepare(self, checkpoint_id: CheckpointId) -> OperatorStateCopy:  # noqa: ARG002 - the port's signature
        return OperatorStateCopy(self._backend.freeze())

    def run(
        self,
        resources: OperatorStateCopy,
        checkpoint_id: CheckpointId,  # noqa: ARG002 - the port's signature
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        if not resources.contents:
            return empty_snapshot(self.description)
        data, states = encode_operator_state(resources.contents)
        if len(data) <= self._inline_bytes:
            inline = ByteStreamStateHandle(f"{self._name}-operator-state", data)
            return SnapshotResult(None, (), operator=OperatorStreamStateHandle(states, inline))
        with Uploads(streams, registry) as uploads:
            written = uploads.write_pieces([data])
            handle = OperatorStreamStateHandle(states, written.handle)
            return SnapshotResult(None, uploads.complete(), operator=handle)

    def close(self) -> None:
        """Nothing to free."""
