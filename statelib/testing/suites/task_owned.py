"""The part of the storage suite that tests task-owned state."""

from dataclasses import replace

import pytest

from statelib.errors import (
    CorruptStateError,
    InvalidRequestError,
    NotFoundError,
    UnsupportedError,
)
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    SegmentScope,
)
from statelib.storage.ports.views import (
    CheckpointStreamFactory,
    StorageReference,
)
from statelib.testing.suites.storage_case import ATTEMPT, OTHER_ATTEMPT, SIZES, Storage, StorageCase, content


class TaskOwnedSuite(StorageCase):
    """The tests of task-owned state, which :class:`~statelib.testing.suites.storage.StorageSuite` inherits."""

    @pytest.mark.parametrize("size", SIZES)
    def test_task_owned_data_outlives_discards_until_its_task_removes_it(
        self, storage: Storage, reference: StorageReference, streams: CheckpointStreamFactory, size: int
    ) -> None:
        worker = self.worker(storage)
        stream = worker.create_task_owned_state_stream(ATTEMPT, 0)
        stream.write(content(size))
        handle = stream.close_and_get_handle().handle
        reader = self.make_reader(reference)
        assert bytes(reader.read(handle)) == content(size)
        if not isinstance(handle, ByteStreamStateHandle):
            assert handle.path.split("/")[-2] == "taskowned"
            with pytest.raises(InvalidRequestError) as caught:
                streams.discard(handle)
            assert caught.value.kind == "foreign-file"
        tools = worker.create_task_owned_checkpoint_state_toolset(OTHER_ATTEMPT, 1)
        tools.discard(handle)
        tools.discard(handle)
        if not isinstance(handle, ByteStreamStateHandle):
            with pytest.raises(NotFoundError):
                reader.read(handle)

    def test_task_owned_streams_are_dropped_like_others_and_never_share_a_file(
        self, storage: Storage, reference: StorageReference
    ) -> None:
        handles = set()
        for _ in range(3):
            stream = self.worker(storage).create_task_owned_state_stream(ATTEMPT, 0)
            stream.write(content(500))
            handles.add(stream.close_and_get_handle().handle)
        assert len(handles) == 3
        before = self.stored_names(reference)
        stream = self.worker(storage).create_task_owned_state_stream(ATTEMPT, 0)
        stream.write(content(5000))
        stream.close()
        assert self.stored_names(reference) == before

    def test_a_duplicate_is_independent_of_its_original(self, storage: Storage, reference: StorageReference) -> None:
        tools = self.worker(storage).create_task_owned_checkpoint_state_toolset(OTHER_ATTEMPT, 0)
        stream = self.worker(storage).create_task_owned_state_stream(ATTEMPT, 0)
        stream.write(content(300_000))
        original = stream.close_and_get_handle().handle
        if not tools.can_fast_duplicate(original):
            with pytest.raises(UnsupportedError) as caught:
                tools.duplicate([original])
            assert caught.value.kind == "no-fast-duplicate"
            return
        one, two = tools.duplicate([original, original])
        assert len({original, one, two}) == 3
        tools.discard(original)
        tools.discard(one)
        assert bytes(self.make_reader(reference).read(two)) == content(300_000)
        assert tools.duplicate([]) == ()

    def test_a_failed_duplication_leaves_nothing(self, storage: Storage, reference: StorageReference) -> None:
        tools = self.worker(storage).create_task_owned_checkpoint_state_toolset(OTHER_ATTEMPT, 0)
        stream = self.worker(storage).create_task_owned_state_stream(ATTEMPT, 0)
        stream.write(content(5000))
        original = stream.close_and_get_handle().handle
        if isinstance(original, FileStateHandle) and tools.can_fast_duplicate(original):
            before = self.stored_names(reference)
            for wrong in (replace(original, size_bytes=5001), replace(original, path=f"{original.path}0")):
                with pytest.raises((CorruptStateError, NotFoundError)):
                    tools.duplicate([original, wrong])
                assert self.stored_names(reference) == before

    def test_pieces_and_inline_bytes_are_not_duplicated(self, storage: Storage, reference: StorageReference) -> None:
        tools = self.worker(storage).create_task_owned_checkpoint_state_toolset(ATTEMPT, 0)
        segment = SegmentFileStateHandle(f"{reference.directory}/x", 0, 1, SegmentScope.SHARED, "")
        for handle in (ByteStreamStateHandle("x", b"1"), RelativeFileStateHandle("x", 1), segment):
            assert not tools.can_fast_duplicate(handle)
            with pytest.raises(UnsupportedError):
                tools.duplicate([handle])
