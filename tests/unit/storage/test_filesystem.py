"""File-system storage beyond the contract: names, layout, threshold, failures, what is refused."""

import os
import pickle
from pathlib import Path

import pytest

from statelib.errors import (
    ConflictError,
    CorruptStateError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StatelibError,
)
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage, FileSystemStreamFactory
from statelib.storage.ports.views import CheckpointedStateScope, StorageReference, WrittenStream
from statelib.storage.streams import CheckpointStream

ATTEMPT = AttemptId("0a" * 16)
FLIGHTS = PipelineName("flights")
ONE = CheckpointId(1)
KIB = 1024


def factory(root: Path, threshold: int = 0, subtask: int = 0) -> FileSystemStreamFactory:
    storage = FileSystemCheckpointStorage(str(root), FLIGHTS, threshold)
    reference = storage.initialize_location(ONE)
    return storage.resolve_checkpoint_storage_location(ONE, reference, ATTEMPT, subtask)


def opened(streams: FileSystemStreamFactory) -> CheckpointStream:
    return streams.create_stream(CheckpointedStateScope.EXCLUSIVE)


def written(streams: FileSystemStreamFactory, size: int) -> WrittenStream:
    stream = opened(streams)
    stream.write(bytes(size))
    return stream.close_and_get_handle()


def test_storages_with_equal_settings_are_equal_and_can_be_pickled(tmp_path: Path) -> None:
    storage = FileSystemCheckpointStorage(f"{tmp_path}/root/", FLIGHTS)
    assert storage == FileSystemCheckpointStorage(f"file:{tmp_path}/root", FLIGHTS, 20 * KIB)
    assert pickle.loads(pickle.dumps(storage)) == storage
    assert list(tmp_path.iterdir()) == []


def test_directories_and_files_have_the_documented_layout(tmp_path: Path) -> None:
    storage = FileSystemCheckpointStorage(str(tmp_path / "root"), FLIGHTS)
    other = tmp_path / "else where"
    references = [
        storage.initialize_location(CheckpointId(17)),
        storage.initialize_savepoint_location(CheckpointId(18), None),
        storage.initialize_savepoint_location(CheckpointId(19), f"file:{other}"),
    ]
    expected = [tmp_path / "root/flights/chk-17", tmp_path / "root/savepoints/savepoint-flights-18"]
    expected.append(other / "savepoint-flights-19")
    assert [r.directory for r in references] == [f"file://{path}" for path in expected]
    for reference, path in zip(references, expected, strict=True):
        storage.publish_metadata(reference, b"m")
        assert [p.name for p in path.iterdir()] == ["_metadata"]


def test_file_names_consist_of_attempt_subtask_and_number(tmp_path: Path) -> None:
    streams = factory(tmp_path, subtask=12)
    handles = [written(streams, size).handle for size in (1, 2)]
    assert handles == [RelativeFileStateHandle(f"{ATTEMPT}-12-0", 1), RelativeFileStateHandle(f"{ATTEMPT}-12-1", 2)]


@pytest.mark.parametrize(("size", "inline"), [(0, True), (20 * KIB - 1, True), (20 * KIB, True), (20 * KIB + 1, False)])
def test_the_default_threshold_is_20_kib_inclusive(tmp_path: Path, size: int, inline: bool) -> None:
    handle = written(factory(tmp_path, 20 * KIB), size).handle
    assert isinstance(handle, ByteStreamStateHandle if inline else RelativeFileStateHandle)
    assert len(list((tmp_path / "flights/chk-1").iterdir())) == (0 if inline else 1)


@pytest.mark.parametrize("threshold", [-1, (1 << 20) + 1])
def test_the_threshold_has_bounds(threshold: int) -> None:
    assert FileSystemCheckpointStorage("/r", FLIGHTS, 1 << 20).inline_threshold_bytes == 1 << 20
    with pytest.raises(InvalidRequestError) as caught:
        FileSystemCheckpointStorage("/r", FLIGHTS, threshold)
    assert caught.value.kind == "bad-inline-threshold"


def test_a_second_try_with_the_same_attempt_id_is_refused(tmp_path: Path) -> None:
    first = written(factory(tmp_path), 10).handle
    with pytest.raises(ConflictError) as caught:
        written(factory(tmp_path), 11)
    assert caught.value.kind == "name-taken"
    assert (tmp_path / "flights/chk-1" / f"{ATTEMPT}-0-0").stat().st_size == first.size_bytes == 10


def test_a_link_in_the_place_of_a_new_file_is_not_followed(tmp_path: Path) -> None:
    streams = factory(tmp_path)
    (tmp_path / "flights/chk-1" / f"{ATTEMPT}-0-0").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConflictError):
        written(streams, 10)
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("below", ["", "/new"])
@pytest.mark.parametrize("what", ["a file", "a link to nothing", "something else"])
def test_the_error_names_what_is_in_the_place_of_the_root(tmp_path: Path, what: str, below: str) -> None:
    place = tmp_path / "place"
    {"a file": place.touch, "a link to nothing": lambda: place.symlink_to("none")}.get(what, lambda: os.mkfifo(place))()
    with pytest.raises(InvalidRequestError, match=f"^{place}: expected a directory, found {what} ") as caught:
        FileSystemCheckpointStorage(f"{place}{below}", FLIGHTS).initialize_location(ONE)
    assert caught.value.kind == "not-a-directory"


@pytest.mark.parametrize("linked", ["flights", "flights/chk-1"])
def test_links_below_the_root_are_refused(tmp_path: Path, linked: str) -> None:
    root, away = tmp_path / "root", tmp_path / "away"
    (root / linked).parent.mkdir(parents=True)
    away.mkdir()
    (root / linked).symlink_to(away)
    with pytest.raises(CorruptStateError) as caught:
        FileSystemCheckpointStorage(str(root), FLIGHTS).initialize_location(ONE)
    assert caught.value.kind == "not-a-regular-file"
    assert list(away.iterdir()) == []
    if linked == "flights/chk-1":
        with pytest.raises(NotFoundError):
            FileSystemCheckpointStorage(str(root), FLIGHTS).resolve_checkpoint_storage_location(
                ONE, StorageReference(f"{root}/{linked}"), ATTEMPT, 0
            )


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_full_disk_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    streams = factory(tmp_path)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    stream = opened(streams)
    stream.write(b"x" * 10)
    with monkeypatch.context() as patched:
        patched.setattr(os, failing, full)
        with pytest.raises(RetryableError) as caught:
            stream.close_and_get_handle()
    assert caught.value.kind == "storage-full"
    assert list((tmp_path / "flights/chk-1").iterdir()) == []
    with pytest.raises(RetryableError):
        stream.close_and_get_handle()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    streams = factory(tmp_path)
    for _ in range(5):
        written(streams, 10)
        dropped = opened(streams)
        dropped.write(bytes(10))
        dropped.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "handle",
    [
        RelativeFileStateHandle("_metadata", 1),
        RelativeFileStateHandle(f"../chk-1/{ATTEMPT}-0-0", 1),
        RelativeFileStateHandle(f"{ATTEMPT}-0-../x", 1),
        RelativeFileStateHandle(f"{ATTEMPT}-0-", 1),
        RelativeFileStateHandle(f"{ATTEMPT}-1-0", 1),
        RelativeFileStateHandle("0", 1),
        FileStateHandle("/etc/passwd", 1),
    ],
)
def test_only_its_own_files_are_discarded(tmp_path: Path, handle: FileStateHandle | RelativeFileStateHandle) -> None:
    streams = factory(tmp_path)
    written(streams, 10)
    with pytest.raises(InvalidRequestError) as caught:
        streams.discard(handle)
    assert caught.value.kind == "foreign-file"
    assert len(list((tmp_path / "flights/chk-1").iterdir())) == 1


def shared(streams: FileSystemStreamFactory, size: int) -> WrittenStream:
    stream = streams.create_stream(CheckpointedStateScope.SHARED)
    stream.write(bytes(size))
    return stream.close_and_get_handle()


def test_shared_files_lie_beside_the_checkpoints_and_have_absolute_uris(tmp_path: Path) -> None:
    streams = factory(tmp_path, subtask=3)
    handles = [written(streams, 5).handle, shared(streams, 6).handle, written(streams, 7).handle]
    uri = f"file://{tmp_path}/flights/shared/{ATTEMPT}-3-1"
    assert handles[1] == FileStateHandle(uri, 6)
    assert [type(handle) for handle in handles[::2]] == [RelativeFileStateHandle] * 2
    assert [p.name for p in (tmp_path / "flights/shared").iterdir()] == [f"{ATTEMPT}-3-1"]
    foreign, own = DirectoryReader(str(tmp_path / "flights/chk-2")), str(tmp_path / "flights")
    with pytest.raises(InvalidRequestError) as caught:
        foreign.read(handles[1])
    assert caught.value.kind == "outside-root"
    assert DirectoryReader(foreign.directory_uri, allowed_root=own).read(handles[1]) == bytes(6)


def test_small_shared_streams_are_inline_and_create_no_directory(tmp_path: Path) -> None:
    assert isinstance(shared(factory(tmp_path, 10), 10).handle, ByteStreamStateHandle)
    assert not (tmp_path / "flights/shared").exists()


def test_a_savepoint_shares_nothing(tmp_path: Path) -> None:
    storage = FileSystemCheckpointStorage(str(tmp_path), FLIGHTS, 0)
    for target in (None, f"{tmp_path}/flights"):
        reference = storage.initialize_savepoint_location(ONE, target)
        handle = shared(storage.resolve_checkpoint_storage_location(ONE, reference, ATTEMPT, 0), 5).handle
        assert handle == RelativeFileStateHandle(f"{ATTEMPT}-0-0", 5)
    assert not (tmp_path / "flights/shared").exists()


def test_a_link_in_the_place_of_the_shared_directory_is_refused(tmp_path: Path) -> None:
    streams, away = factory(tmp_path), tmp_path / "away"
    away.mkdir()
    (tmp_path / "flights/shared").symlink_to(away)
    with pytest.raises(CorruptStateError) as caught:
        shared(streams, 10)
    assert caught.value.kind == "not-a-regular-file"
    assert list(away.iterdir()) == []


def test_only_its_own_shared_files_are_discarded(tmp_path: Path) -> None:
    streams, other = factory(tmp_path), factory(tmp_path, subtask=1)
    place = f"file://{tmp_path}/flights/shared/{ATTEMPT}-0-"
    still_shared = [shared(streams, 10).handle, shared(other, 10).handle]
    for path in (
        still_shared[1].path,
        f"{place}../x",
        place,
        f"{place}0/..",
        still_shared[0].path.replace("shared", "chk-1"),
    ):
        with pytest.raises(InvalidRequestError) as caught:
            streams.discard(FileStateHandle(path, 10))
        assert caught.value.kind == "foreign-file"
    assert len(list((tmp_path / "flights/shared").iterdir())) == 2
    streams.discard(still_shared[0])
    assert [p.name for p in (tmp_path / "flights/shared").iterdir()] == [f"{ATTEMPT}-1-0"]


@pytest.mark.parametrize("attempt", ["", "../" + "a" * 29, "a" * 31, "A" * 32, "a" * 32 + "\n", "*" * 32])
def test_hostile_attempt_ids_are_refused(tmp_path: Path, attempt: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        FileSystemStreamFactory(str(tmp_path), AttemptId(attempt), 0, 0)
    assert caught.value.kind == "bad-attempt"


@pytest.mark.parametrize("number", [-1, True, "1", "../1", 1.0, None])
def test_ids_that_are_no_plain_integers_are_refused(tmp_path: Path, number: object) -> None:
    storage = FileSystemCheckpointStorage(str(tmp_path), FLIGHTS)
    with pytest.raises(InvalidRequestError) as caught:
        storage.initialize_location(number)
    assert caught.value.kind == "bad-id"
    with pytest.raises(InvalidRequestError):
        storage.initialize_savepoint_location(number, None)
    with pytest.raises(InvalidRequestError):
        FileSystemStreamFactory(str(tmp_path), ATTEMPT, number, 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/b", "", ".hidden", "-x", "a..b", "x" * 129, "é", "a\0"])
def test_hostile_pipeline_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        FileSystemCheckpointStorage("/r", PipelineName(name))
    assert caught.value.kind == "bad-name"


@pytest.mark.parametrize("root", ["relative", "", "s3://bucket", "/a/../b"])
def test_hostile_roots_are_refused(root: str) -> None:
    with pytest.raises(StatelibError):
        FileSystemCheckpointStorage(root, FLIGHTS)


@pytest.mark.parametrize("target", ["relative", "s3://bucket/x", "/a/../b", "file://host/a"])
def test_hostile_savepoint_targets_are_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(StatelibError):
        FileSystemCheckpointStorage(str(tmp_path), FLIGHTS).initialize_savepoint_location(ONE, target)


def test_a_handle_is_returned_only_after_the_file_and_its_name_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync
    synced: list[tuple[str, int]] = []

    def spy(file: int) -> None:
        name = os.path.basename(os.readlink(f"/proc/self/fd/{file}"))
        synced.append((name, os.fstat(file).st_size if name != "chk-1" else 0))
        fsync(file)

    streams = factory(tmp_path)
    monkeypatch.setattr(os, "fsync", spy)
    written(streams, 1000)
    assert synced == [(f"{ATTEMPT}-0-0", 1000), ("chk-1", 0)]


def test_new_directories_are_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync
    synced: list[str] = []

    def spy(file: int) -> None:
        synced.append(os.path.basename(os.readlink(f"/proc/self/fd/{file}")))
        fsync(file)

    monkeypatch.setattr(os, "fsync", spy)
    FileSystemCheckpointStorage(str(tmp_path / "new" / "root"), FLIGHTS).initialize_location(ONE)
    existing = tmp_path.parent.name  # This directory contains one that a killed process may have made just now.
    assert synced == [existing, tmp_path.name, "new", "root", "flights"]
