"""Checkpoint streams that call a hook before each operation. The hook may raise, wait or count."""

import threading
from collections.abc import Callable, Collection, Mapping

from statelib.model.handles import StreamStateHandle
from statelib.storage.ports.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStreamFactory,
    PhysicalFile,
    WrittenStream,
)

Hook = Callable[[int], None]
"""A function that is called with the number of an operation, counted from 0, before the operation."""


class FaultyStreams:
    """A :class:`~statelib.storage.ports.views.CheckpointStreamFactory` around a real one. Thread-safe.

    ``operations``: the operations so far, in order: ``create``, ``write``, ``finish``, ``duplicate``, ``flush``.
    ``scopes``: the scopes of the streams created so far, in order."""

    def __init__(self, streams: CheckpointStreamFactory, before: Hook) -> None:
        self._streams = streams
        self._before = before
        self._lock = threading.Lock()
        self.operations: list[str] = []
        self.scopes: list[CheckpointedStateScope] = []

    def create_stream(self, scope: CheckpointedStateScope) -> CheckpointOutputStream:
        self.step("create")
        self.scopes.append(scope)
        return _FaultyStream(self._streams.create_stream(scope), self)

    def discard(self, handle: StreamStateHandle) -> None:
        self._streams.discard(handle)

    def flush(self) -> Mapping[str, PhysicalFile]:
        self.step("flush")
        return self._streams.flush()

    def reusable(self, earlier: Collection[WrittenStream]) -> frozenset[StreamStateHandle]:
        return self._streams.reusable(earlier)

    def duplicate(self, original: StreamStateHandle, scope: CheckpointedStateScope) -> StreamStateHandle | None:
        self.step("duplicate")
        return self._streams.duplicate(original, scope)

    def step(self, operation: str) -> None:
        with self._lock:
            number = len(self.operations)
            self.operations.append(operation)
        self._before(number)


class _FaultyStream:
    def __init__(self, stream: CheckpointOutputStream, owner: FaultyStreams) -> None:
        self._stream = stream
        self._owner = owner

    def write(self, data: bytes | memoryview) -> None:
        self._owner.step("write")
        self._stream.write(data)

    def position(self) -> int:
        return self._stream.position()

    def close_and_get_handle(self) -> WrittenStream:
        self._owner.step("finish")
        return self._stream.close_and_get_handle()

    def close(self) -> None:
        self._stream.close()


def undisturbed(_number: int) -> None:
    """Do nothing: the hook of an undisturbed snapshot."""
