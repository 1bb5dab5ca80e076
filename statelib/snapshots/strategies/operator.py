"""The snapshot of operator state: a copy in the synchronous part, one stream in the asynchronous part.

Source: docs/spec/requirements.md R116 to R121; docs/spec/formats.md#operator-state
(DefaultOperatorStateBackendSnapshotStrategy).
"""

from dataclasses import dataclass

from statelib.backends.operator.state import OperatorStateBackend
from statelib.formats.operator_state import OperatorStateContent, encode_operator_state
from statelib.model.handles import ByteStreamStateHandle, OperatorStreamStateHandle
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategy import CheckpointListener, SnapshotResult, empty_snapshot
from statelib.snapshots.uploads.streams import Uploads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointStreamFactory


@dataclass
class OperatorStateCopy:
    """The operator states, copied at one moment."""

    contents: tuple[OperatorStateContent, ...]

    def release(self) -> None:
        """Free the copies."""
        self.contents = ()


class OperatorStateSnapshotStrategy(CheckpointListener):
    """The :class:`~statelib.snapshots.strategy.SnapshotStrategy` that writes operator state.

    Its results have only an ``operator`` handle."""

    description = "Asynchronous operator state snapshot"

    def __init__(self, backend: OperatorStateBackend, name: str = "", inline_bytes: int = 0) -> None:
        """Make a strategy.

        Args:
            backend: The backend to snapshot.
            name: The beginning of the name of an inline stream.
            inline_bytes: The size up to which the stream becomes part of the handle instead of a file. A source
                position is only a few bytes, and a file of its own would cost a request to the storage.
        """
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
        """Do nothing: the strategy holds no resources."""
