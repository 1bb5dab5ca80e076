"""Task-owned state on a file system: its streams and its toolset."""

from collections.abc import Sequence

from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, StreamStateHandle
from statelib.model.ids import AttemptId, PipelineName
from statelib.storage.filesystem.copies import copied_file, on_file_system_of
from statelib.storage.filesystem.data_files import DataFile, PipelineDirectory, remove_file
from statelib.storage.names import TASK_OWNED_DIRECTORY, task_owned_name
from statelib.storage.streams import CheckpointStream
from statelib.storage.task_owned import duplicable, own_name
from statelib.storage.uris import local_path, to_uri


class FileTaskOwned:
    """The task-owned streams of one subtask's attempt on a file system, and a
    :class:`~statelib.storage.ports.views.CheckpointStateToolset` for them."""

    def __init__(
        self, root: str, pipeline: PipelineName, attempt: AttemptId, subtask: int, inline_threshold_bytes: int
    ) -> None:
        self._root = local_path(root)
        self._directory = PipelineDirectory(self._root, pipeline, TASK_OWNED_DIRECTORY)
        self._inline_threshold_bytes = inline_threshold_bytes
        self._attempt_and_subtask = (attempt, subtask)

    def create_stream(self) -> CheckpointStream:
        """Return a new stream whose file has a new name in the directory of task-owned state."""
        name = task_owned_name(*self._attempt_and_subtask)
        return CheckpointStream(name, self._inline_threshold_bytes, lambda _size: self._new_file(name))

    def can_fast_duplicate(self, handle: StreamStateHandle) -> bool:
        """Return whether the handle stands for a whole file, by absolute path, on the file system of this storage."""
        return on_file_system_of(handle, self._root) is not None

    def duplicate(self, handles: Sequence[StreamStateHandle]) -> tuple[StreamStateHandle, ...]:
        sources = [duplicable(handle, self.can_fast_duplicate(handle)) for handle in handles]
        copies: list[StreamStateHandle] = []
        try:
            copies.extend(self._copied(source) for source in sources)
        except BaseException:
            for handle in copies:
                self.discard(handle)
            raise
        return tuple(copies)

    def discard(self, handle: StreamStateHandle) -> None:
        if not isinstance(handle, ByteStreamStateHandle):
            remove_file(self._directory.path, own_name(handle, to_uri(self._directory.path)))

    def _new_file(self, name: str) -> DataFile:
        self._directory.make()
        return DataFile(self._directory.path, name, absolute=True)

    def _copied(self, handle: FileStateHandle) -> StreamStateHandle:
        return copied_file(handle, lambda: self._new_file(task_owned_name(*self._attempt_and_subtask)))
