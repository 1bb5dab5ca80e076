"""The contract of a kind of storage as tests, which a subclass of :class:`StorageKindSuite` inherits.

Each test checks one method of the port in ``statelib.storage.ports.kind``, or of the remover that it returns.
"""

from collections.abc import Iterable
from dataclasses import replace
from io import SEEK_CUR, SEEK_END

import pytest

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.checkpoint import FileRecord
from statelib.model.handles import RelativeFileStateHandle
from statelib.model.ids import PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.names import METADATA_NAME
from statelib.storage.ports.inventory import SourceEntry
from statelib.storage.ports.kind import StorageKind, StorageSettings
from statelib.storage.ports.removal import CheckpointRemover
from statelib.storage.ports.views import CheckpointedStateScope, StorageReference, WrittenStream
from statelib.testing.suites.storage_case import ATTEMPT, ID, content

SETTINGS = StorageSettings(PipelineName("flights"), 0)


class StorageKindSuite:
    """The tests that every kind of storage passes. A subclass overrides the two methods that raise
    NotImplementedError."""

    uploads_stay_unfinished = False
    """Whether parts of an upload stay in the storage if its writer is killed."""

    def make_kind(self) -> StorageKind:
        """Return the kind of storage under test."""
        raise NotImplementedError

    @pytest.fixture
    def root(self) -> str:
        """Return the normalised URI of a new place of this kind, below which a test may write."""
        raise NotImplementedError

    @pytest.fixture
    def kind(self) -> StorageKind:
        return self.make_kind()

    @pytest.fixture
    def remover(self, kind: StorageKind) -> CheckpointRemover:
        return kind.remover()

    @pytest.fixture
    def reference(self, kind: StorageKind, root: str) -> StorageReference:
        return kind.storage(root, SETTINGS).initialize_location(ID)

    @pytest.fixture
    def written(self, kind: StorageKind, root: str, reference: StorageReference) -> WrittenStream:
        """Return a file with 5,000 bytes beside the ``_metadata`` of a published checkpoint."""
        storage = kind.storage(root, SETTINGS)
        streams = storage.resolve_checkpoint_storage_location(ID, reference, ATTEMPT, 0)
        stream = streams.create_stream(CheckpointedStateScope.EXCLUSIVE)
        stream.write(content(5000))
        written = stream.close_and_get_handle()
        streams.flush()
        storage.publish_metadata(reference, b"published")
        return written

    @pytest.fixture
    def record(self, written: WrittenStream) -> FileRecord:
        """Return the record of the written file in a manifest."""
        return FileRecord(_name(written), 5000, written.crc32c, 0, KeyGroupRange(0, 127), written.xxh3)

    # reading

    def test_a_reader_returns_the_written_bytes(
        self, kind: StorageKind, reference: StorageReference, written: WrittenStream
    ) -> None:
        checksums = {_name(written): (5000, written.crc32c)}
        assert kind.reader(reference.directory, checksums, None).read(written.handle) == content(5000)

    @pytest.mark.usefixtures("written")
    def test_published_metadata_are_read(self, kind: StorageKind, reference: StorageReference) -> None:
        assert kind.read_published(reference.directory) == b"published"
        with pytest.raises(NotFoundError) as caught:
            kind.read_published(f"{reference.directory}1")
        assert caught.value.kind == "no-metadata"

    def test_verification_detects_missing_and_different_files(
        self, kind: StorageKind, reference: StorageReference, record: FileRecord
    ) -> None:
        records = [record, replace(record, size_bytes=1), replace(record, crc32c=1), replace(record, path="missing")]
        findings = kind.verify_files(reference.directory, records, True, None)
        assert [finding.problem for finding in findings] == ["", "size", "checksum", "missing"]

    def test_a_file_outside_of_the_roots_is_not_verified(
        self, kind: StorageKind, root: str, reference: StorageReference, record: FileRecord
    ) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            kind.verify_files(reference.directory, [replace(record, path=f"{root}/elsewhere")], True, None)
        assert caught.value.kind == "outside-root"

    # listing

    def test_a_listing_has_every_file(
        self, kind: StorageKind, reference: StorageReference, written: WrittenStream
    ) -> None:
        sizes = {file.path: file.size_bytes for file in kind.list_files(reference.directory)}
        assert (sizes[METADATA_NAME], sizes[_name(written)]) == (9, 5000)
        with pytest.raises(NotFoundError) as caught:
            kind.list_files(f"{reference.directory}1")
        assert caught.value.kind == "missing-file"

    def test_a_source_has_the_entries_below_its_path(
        self, kind: StorageKind, root: str, reference: StorageReference, written: WrittenStream
    ) -> None:
        entries = list(kind.source_entries(reference.directory))
        assert {entry.below for entry in _files(entries)} >= {(METADATA_NAME,), (_name(written),)}
        assert [entry.below for entry in _files(kind.source_entries(f"{reference.directory}/{METADATA_NAME}"))] == [()]
        assert list(kind.source_entries(f"{root}/absent")) == []

    def test_a_file_of_a_source_is_read_and_sought(
        self, kind: StorageKind, root: str, reference: StorageReference, written: WrittenStream
    ) -> None:
        with kind.open_source(f"{reference.directory}/{_name(written)}") as file:
            assert (file.seek(-10, SEEK_END), file.read(4), file.tell()) == (4990, content(5000)[4990:4994], 4994)
            assert (file.seek(2), file.seek(3, SEEK_CUR), file.read(5)) == (2, 5, content(5000)[5:10])
            assert (file.seek(0), file.read(), file.read(1)) == (0, content(5000), b"")
            assert (file.seek(6000), file.read(1)) == (6000, b"")
        with pytest.raises((OSError, NotFoundError)):
            kind.open_source(f"{root}/absent").read(1)

    # places

    def test_equal_places_have_equal_uris(self, kind: StorageKind, root: str) -> None:
        assert kind.normalised(f"{root}/a//b/./c/") == kind.normalised(f"{root}/a/b/c") == f"{root}/a/b/c"

    def test_a_shown_place_is_one_that_users_can_type(self, kind: StorageKind, root: str) -> None:
        assert kind.normalised(kind.shown(f"{root}/a")) == f"{root}/a"

    @pytest.mark.usefixtures("written")
    def test_two_directories_of_a_storage_are_two_snapshots(
        self, kind: StorageKind, root: str, reference: StorageReference
    ) -> None:
        storage = kind.storage(root, SETTINGS)
        other = storage.initialize_savepoint_location(ID, None)
        storage.publish_metadata(other, b"published")
        assert kind.same_snapshot(reference.directory, other.directory) is False

    def test_the_owner_of_a_place_is_advised_on_unfinished_uploads(self, kind: StorageKind, root: str) -> None:
        assert bool(kind.advice_on_unfinished(root)) is self.uploads_stay_unfinished

    # removing

    def test_the_remover_lists_files_without_objects_for_directories(
        self, remover: CheckpointRemover, root: str, reference: StorageReference, written: WrittenStream
    ) -> None:
        assert {file.path for file in remover.list_files(reference.directory)} == {METADATA_NAME, _name(written)}
        assert remover.list_files(f"{root}/absent") == []

    @pytest.mark.usefixtures("written")
    def test_the_remover_lists_directories(
        self, remover: CheckpointRemover, root: str, reference: StorageReference
    ) -> None:
        assert remover.list_directories(f"{root}/flights") == {reference.directory}
        assert remover.list_directories(f"{root}/absent") == frozenset()

    @pytest.mark.usefixtures("written")
    def test_the_time_is_that_of_the_files_and_no_file_is_left(
        self, remover: CheckpointRemover, reference: StorageReference
    ) -> None:
        before = remover.list_files(reference.directory)
        assert remover.now_ms(reference.directory) >= max(file.modified_at_ms for file in before)
        assert remover.list_files(reference.directory) == before

    def test_a_removal_may_be_repeated(
        self, remover: CheckpointRemover, root: str, reference: StorageReference, written: WrittenStream
    ) -> None:
        metadata, data = f"{reference.directory}/{METADATA_NAME}", f"{reference.directory}/{_name(written)}"
        assert [remover.remove_file(metadata, [root]) for _ in range(2)] == [True, False]
        assert not remover.remove_directory(reference.directory, [root]), "it is not empty"
        for _ in range(2):
            remover.remove_files([data, metadata], [root])
        assert [remover.remove_directory(reference.directory, [root]) for _ in range(2)] == [True, False]
        assert remover.list_directories(f"{root}/flights") == frozenset()

    def test_files_outside_of_the_roots_are_never_removed(
        self, remover: CheckpointRemover, root: str, reference: StorageReference, written: WrittenStream
    ) -> None:
        data = f"{reference.directory}/{_name(written)}"
        for remove in (remover.remove_file, remover.remove_directory):
            with pytest.raises(InvalidRequestError) as caught:
                remove(data, [f"{root}/other"])
            assert caught.value.kind == "outside-root"
        with pytest.raises(InvalidRequestError):
            remover.remove_files([data, f"{root}/other/x"], [reference.directory])
        assert {file.path for file in remover.list_files(reference.directory)} == {METADATA_NAME, _name(written)}

    def test_a_batch_of_removals_has_a_size(self, remover: CheckpointRemover) -> None:
        assert remover.files_at_once >= 1


def _name(written: WrittenStream) -> str:
    """Return the name of a written file, which lies beside ``_metadata``."""
    assert isinstance(written.handle, RelativeFileStateHandle)
    return written.handle.path


def _files(entries: Iterable[SourceEntry]) -> list[SourceEntry]:
    """Return the entries that are files."""
    return [entry for entry in entries if entry.modified_at_ms is not None]
