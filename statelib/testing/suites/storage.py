"""The contract of a checkpoint storage as tests, which a subclass of :class:`StorageSuite` inherits.

Each test checks one sentence of the ports in ``statelib.storage.ports.views``.
"""

import pickle
import threading
from pathlib import Path

import pytest

from statelib.errors import (
    ConflictError,
    CorruptStateError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
)
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    SegmentFileStateHandle,
)
from statelib.model.ids import CheckpointId
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import (
    DEFAULT_REFERENCE,
    CheckpointedStateScope,
    CheckpointStreamFactory,
    StorageReference,
    WrittenStream,
)
from statelib.storage.references import decode_reference, encode_reference
from statelib.testing.suites.storage_case import ATTEMPT, ID, OTHER_ATTEMPT, SIZES, Storage, content
from statelib.testing.suites.task_owned import TaskOwnedSuite


class StorageSuite(TaskOwnedSuite):
    """The tests that every checkpoint storage passes. A subclass overrides the three methods of
    :class:`~statelib.testing.suites.storage_case.StorageCase`."""

    # streams

    @pytest.mark.parametrize("size", SIZES)
    def test_written_bytes_are_read_back(
        self, streams: CheckpointStreamFactory, reference: StorageReference, size: int
    ) -> None:
        data = content(size)
        stream = self.open(streams)
        stream.write(data)
        written = stream.close_and_get_handle()
        streams.flush()
        assert written.size_bytes == written.handle.size_bytes == size
        assert bytes(self.make_reader(reference).read(written.handle)) == data

    def test_the_checksum_is_that_of_all_bytes(self, streams: CheckpointStreamFactory) -> None:
        stream = self.open(streams)
        stream.write(b"12345")
        stream.write(memoryview(b"6789"))
        assert stream.close_and_get_handle().crc32c == 0xE3069283

    @pytest.mark.parametrize("piece", [1, 37, 4096, 70_000])
    def test_several_writes_make_the_same_stream_as_one(
        self, streams: CheckpointStreamFactory, reference: StorageReference, piece: int
    ) -> None:
        data = content(150_001)[-20_000 if piece == 1 else 0 :]
        whole, pieces = self.open(streams), self.open(streams)
        whole.write(data)
        for start in range(0, len(data), piece):
            assert pieces.position() == start
            pieces.write(data[start : start + piece])
        one, many = whole.close_and_get_handle(), pieces.close_and_get_handle()
        assert (one.size_bytes, one.crc32c) == (many.size_bytes, many.crc32c)
        streams.flush()
        reader = self.make_reader(reference)
        assert reader.read(one.handle) == reader.read(many.handle)

    def test_a_stream_without_bytes_has_a_handle_of_size_zero(
        self, streams: CheckpointStreamFactory, reference: StorageReference
    ) -> None:
        written = self.open(streams).close_and_get_handle()
        assert (written.size_bytes, written.crc32c, self.stored_names(reference)) == (0, 0, set())
        assert bytes(self.make_reader(reference).read(written.handle)) == b""

    def test_streams_never_share_a_handle(self, storage: Storage, reference: StorageReference) -> None:
        handles = set()
        for attempt in (ATTEMPT, OTHER_ATTEMPT):
            for subtask in (0, 1, 10):
                streams = self.worker(storage).resolve_checkpoint_storage_location(ID, reference, attempt, subtask)
                for size in (10, 10, 500, 500):
                    stream = self.open(streams)
                    stream.write(content(size))
                    handles.add(stream.close_and_get_handle().handle)
        assert len(handles) == 2 * 3 * 4

    # duplicates of stored streams

    @pytest.mark.parametrize("scope", CheckpointedStateScope)
    def test_a_duplicate_has_the_bytes_and_outlives_its_original(
        self, storage: Storage, reference: StorageReference, scope: CheckpointedStateScope
    ) -> None:
        worker = self.worker(storage)
        earlier = worker.resolve_checkpoint_storage_location(ID, reference, ATTEMPT, 0)
        later = worker.resolve_checkpoint_storage_location(ID, reference, OTHER_ATTEMPT, 0)
        stream = earlier.create_stream(CheckpointedStateScope.SHARED)
        stream.write(content(5_000_000))  # The stream is too large to be merged.
        original = stream.close_and_get_handle().handle
        copy = later.duplicate(original, scope)
        if copy is None:
            return
        reader = self.make_reader(reference)
        assert copy != original
        earlier.discard(original)
        assert bytes(reader.read(copy)) == content(5_000_000)
        with pytest.raises(NotFoundError) as caught:
            later.duplicate(original, scope)
        assert caught.value.kind == "missing-file"
        later.discard(copy)
        assert self.stored_names(reference) == set(), "the failed duplicate left a file"

    def test_inline_bytes_are_not_duplicated(self, streams: CheckpointStreamFactory) -> None:
        assert streams.duplicate(ByteStreamStateHandle("small", b"123"), CheckpointedStateScope.EXCLUSIVE) is None

    # closing and cancelling

    @pytest.mark.parametrize("size", SIZES)
    def test_closing_without_a_handle_leaves_nothing(
        self, streams: CheckpointStreamFactory, reference: StorageReference, size: int
    ) -> None:
        stream = self.open(streams)
        stream.write(content(size))
        stream.close()
        stream.close()
        assert self.stored_names(reference) == set()
        with pytest.raises(RetryableError) as caught:
            stream.write(b"x")
        assert caught.value.kind == "cancelled"
        with pytest.raises(RetryableError):
            stream.close_and_get_handle()
        assert self.stored_names(reference) == set()

    def test_closing_after_the_handle_keeps_the_data(
        self, streams: CheckpointStreamFactory, reference: StorageReference
    ) -> None:
        stream = self.open(streams)
        stream.write(content(5000))
        handle = stream.close_and_get_handle().handle
        stream.close()
        streams.flush()
        assert self.make_reader(reference).read(handle) == content(5000)
        with pytest.raises(InvalidRequestError, match="taken already") as caught:
            stream.write(b"more")
        assert caught.value.kind == "stream-finished"

    def test_a_closed_registry_cancels_the_stream(
        self, streams: CheckpointStreamFactory, reference: StorageReference
    ) -> None:
        registry = CloseableRegistry()
        early, late = self.open(streams), self.open(streams)
        registry.register(early)
        early.write(content(5000))
        registry.close()
        late.write(content(5000))
        with pytest.raises(RetryableError):
            registry.register(late)
        for stream in (early, late):
            with pytest.raises(RetryableError):
                stream.close_and_get_handle()
        assert self.stored_names(reference) == set()

    def test_cancelling_from_another_thread_ends_writing(
        self, streams: CheckpointStreamFactory, reference: StorageReference
    ) -> None:
        stream = self.open(streams)
        started = threading.Event()
        errors: list[RetryableError] = []

        def write_until_cancelled() -> None:
            try:
                for _ in range(1_000_000):
                    stream.write(b"")
                    if stream.position() < 5000:
                        stream.write(content(50))
                    started.set()
            except RetryableError as error:
                errors.append(error)

        writer = threading.Thread(target=write_until_cancelled)
        writer.start()
        started.wait()
        stream.close()
        writer.join()
        assert [error.kind for error in errors] == ["cancelled"]
        assert self.stored_names(reference) == set()

    @pytest.mark.parametrize("size", [0, 10, 5000])
    def test_discarding_removes_the_data_and_may_be_repeated(
        self, streams: CheckpointStreamFactory, reference: StorageReference, size: int
    ) -> None:
        stream = self.open(streams)
        stream.write(content(size))
        handle = stream.close_and_get_handle().handle
        streams.discard(handle)
        streams.discard(handle)
        assert self.stored_names(reference) == set()

    def test_both_scopes_number_their_streams_together(
        self, streams: CheckpointStreamFactory, reference: StorageReference
    ) -> None:
        handles = []
        for scope in (*CheckpointedStateScope, *CheckpointedStateScope):
            stream = streams.create_stream(scope)
            stream.write(content(1000))
            handles.append(stream.close_and_get_handle().handle)
        assert len(set(handles)) == 4
        streams.flush()
        reader = self.make_reader(reference)
        assert all(reader.read(handle) == content(1000) for handle in handles)

    # reading

    @pytest.mark.parametrize("size", [10, 5000])
    def test_exactly_the_requested_range_is_read(
        self, streams: CheckpointStreamFactory, reference: StorageReference, size: int
    ) -> None:
        stream = self.open(streams)
        stream.write(content(size))
        handle, reader = stream.close_and_get_handle().handle, self.make_reader(reference)
        streams.flush()
        for start, stop in [(0, size), (0, 0), (size, size), (3, 4), (1, size - 1)]:
            assert bytes(reader.read_range(handle, start, stop)) == content(size)[start:stop]
        for start, stop in [(0, size + 1), (-1, 2), (3, 2), (size + 1, size + 1)]:
            with pytest.raises(CorruptStateError) as caught:
                reader.read_range(handle, start, stop)
            assert caught.value.kind == "bad-range"

    @pytest.mark.parametrize("size", [0, 10, 5000])
    def test_copies_are_new_files(
        self, streams: CheckpointStreamFactory, reference: StorageReference, tmp_path: Path, size: int
    ) -> None:
        stream = self.open(streams)
        stream.write(content(size))
        handle, reader = stream.close_and_get_handle().handle, self.make_reader(reference)
        streams.flush()
        target = tmp_path / "copy"
        reader.copy_to(handle, str(target))
        assert target.read_bytes() == content(size)
        target.write_bytes(b"precious")
        with pytest.raises(ConflictError):
            reader.copy_to(handle, str(target))
        assert target.read_bytes() == b"precious"

    # metadata and locations

    def test_the_first_published_metadata_are_kept(self, storage: Storage, reference: StorageReference) -> None:
        assert storage.publish_metadata(reference, b"first") == b"first"
        assert storage.publish_metadata(reference, b"second, longer") == b"first"
        assert storage.publish_metadata(reference, b"first") == b"first"
        assert storage.read_metadata(reference) == b"first"

    def test_missing_metadata_are_an_error(self, storage: Storage, reference: StorageReference) -> None:
        with pytest.raises(NotFoundError) as caught:
            storage.read_metadata(reference)
        assert caught.value.kind == "no-metadata"

    def test_a_location_can_be_initialised_again_until_metadata_are_published(
        self, storage: Storage, reference: StorageReference
    ) -> None:
        assert storage.initialize_location(ID) == reference
        storage.publish_metadata(reference, b"done")
        with pytest.raises(ConflictError) as caught:
            storage.initialize_location(ID)
        assert caught.value.kind == "location-taken"
        assert storage.read_metadata(reference) == b"done"

    def test_different_locations_do_not_share_files(self, storage: Storage, reference: StorageReference) -> None:
        savepoint = storage.initialize_savepoint_location(ID, None)
        references = {reference, storage.initialize_location(CheckpointId(70)), savepoint}
        assert len(references) == 3
        for number, each in enumerate(sorted(references, key=lambda r: r.directory)):
            assert storage.publish_metadata(each, b"%d" % number) == b"%d" % number

    def test_a_reference_can_be_sent_to_a_worker(self, storage: Storage, reference: StorageReference) -> None:
        savepoint = storage.initialize_savepoint_location(ID, None)
        for subtask, each in enumerate((reference, savepoint, DEFAULT_REFERENCE)):
            shipped = pickle.loads(pickle.dumps(decode_reference(encode_reference(each))))  # noqa: S301 - our own bytes
            assert shipped == each
            streams = self.worker(storage).resolve_checkpoint_storage_location(ID, shipped, ATTEMPT, subtask)
            stream = streams.create_stream(CheckpointedStateScope.EXCLUSIVE)
            stream.write(content(500))
            handle = stream.close_and_get_handle().handle
            streams.flush()
            assert self.make_reader(each if each.directory else reference).read(handle) == content(500)

    def test_the_default_reference_is_empty_and_means_the_coordinators_location(
        self, storage: Storage, reference: StorageReference
    ) -> None:
        assert storage.default_location(ID) == reference == self.worker(storage).default_location(ID)
        assert encode_reference(DEFAULT_REFERENCE) == encode_reference(reference, storage.default_location(ID)) == b""
        other = CheckpointId(8)
        with pytest.raises(NotFoundError) as caught:
            self.worker(storage).resolve_checkpoint_storage_location(other, DEFAULT_REFERENCE, ATTEMPT, 0)
        assert caught.value.kind == "no-location"

    def test_a_location_that_was_not_initialised_is_an_error(
        self, storage: Storage, reference: StorageReference
    ) -> None:
        missing = StorageReference(reference.directory + "-not")
        with pytest.raises(NotFoundError) as caught:
            self.worker(storage).resolve_checkpoint_storage_location(ID, missing, ATTEMPT, 0)
        assert caught.value.kind == "no-location"

    # segments, and streams of earlier checkpoints

    def test_flushing_may_be_repeated_and_returns_the_files_with_segments(
        self, streams: CheckpointStreamFactory
    ) -> None:
        assert streams.flush() == {}
        handles = []
        for size in (500, 700, 500):
            stream = self.open(streams)
            stream.write(content(size))
            handles.append(stream.close_and_get_handle().handle)
        segments = [handle for handle in handles if isinstance(handle, SegmentFileStateHandle)]
        physical = streams.flush()
        assert physical.keys() == {segment.path for segment in segments}
        assert sum(file.size_bytes for file in physical.values()) == sum(segment.size_bytes for segment in segments)
        assert streams.flush() == physical

    def test_whole_files_and_inline_bytes_may_be_referred_to_again(self, streams: CheckpointStreamFactory) -> None:
        earlier = [
            WrittenStream(ByteStreamStateHandle("x", b"12"), 2, 0),
            WrittenStream(FileStateHandle("file:///x", 5), 5, 0),
        ]
        assert streams.reusable(earlier) == {written.handle for written in earlier}
