"""Reading: damage is found and named, nothing outside the root is touched, links are not followed."""

import os
import pickle
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError, StatelibError, UnsupportedError
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle
from statelib.storage.filesystem.reader import BLOCK_BYTES, DirectoryReader
from statelib.wire.checksum import crc32c

DATA = bytes(range(256)) * 3


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "root" / "chk-1"
    directory.mkdir(parents=True)
    (directory / "data").write_bytes(DATA)
    (tmp_path / "root" / "shared").mkdir()
    (tmp_path / "root" / "shared" / "sst").write_bytes(DATA[:100])
    (tmp_path / "secret").write_bytes(DATA)
    return directory


def checked(root: Path) -> DirectoryReader:
    return DirectoryReader(str(root), {"data": (len(DATA), crc32c(DATA))})


HANDLE = RelativeFileStateHandle("data", len(DATA))


def failure(reader: DirectoryReader, handle: FileStateHandle | RelativeFileStateHandle, scratch: Path) -> StatelibError:
    """Return the error of reading. Assert that copying raises the same error and leaves no file."""
    with pytest.raises(StatelibError) as read:
        reader.read(handle)
    with pytest.raises(type(read.value)) as copied:
        reader.copy_to(handle, str(scratch / "copy"))
    assert copied.value.kind == read.value.kind
    assert not (scratch / "copy").exists()
    return read.value


def test_readers_with_equal_settings_are_equal_and_can_be_pickled(root: Path) -> None:
    reader = pickle.loads(pickle.dumps(checked(root)))
    assert reader == checked(root)
    assert bytes(reader.read(HANDLE)) == DATA
    assert reader.read(HANDLE).readonly


def test_the_error_names_a_missing_file(root: Path, tmp_path: Path) -> None:
    (root / "data").unlink()
    error = failure(checked(root), HANDLE, tmp_path)
    assert isinstance(error, NotFoundError)
    assert error.kind == "missing-file"
    assert str(root / "data") in str(error)


@pytest.mark.parametrize("size", [0, 1, len(DATA) - 1])
def test_the_error_names_a_truncated_file(root: Path, tmp_path: Path, size: int) -> None:
    os.truncate(root / "data", size)
    error = failure(checked(root), HANDLE, tmp_path)
    assert isinstance(error, CorruptStateError)
    assert error.kind == "size-mismatch"
    assert f"{root / 'data'}: expected {len(DATA)} bytes, found {size}" in str(error)
    with pytest.raises(CorruptStateError):
        checked(root).read_range(HANDLE, 0, 1)


def test_a_file_that_has_grown_and_a_handle_of_the_wrong_size_are_detected(root: Path, tmp_path: Path) -> None:
    lying = RelativeFileStateHandle("data", len(DATA) + 1)
    assert failure(DirectoryReader(str(root), None), lying, tmp_path).kind == "size-mismatch"
    (root / "data").write_bytes(DATA + b"x")
    assert failure(DirectoryReader(str(root), None), HANDLE, tmp_path).kind == "size-mismatch"
    assert failure(checked(root), lying, tmp_path).kind == "size-mismatch"


def test_every_flipped_bit_is_detected(root: Path, tmp_path: Path) -> None:
    for at in range(0, len(DATA), 61):
        damaged = bytearray(DATA)
        damaged[at] ^= 1 << at % 8
        (root / "data").write_bytes(damaged)
        error = failure(checked(root), HANDLE, tmp_path)
        assert isinstance(error, CorruptStateError)
        assert error.kind == "checksum-mismatch"
        assert str(root / "data") in str(error)


@pytest.mark.parametrize("size", [BLOCK_BYTES - 1, BLOCK_BYTES, 2 * BLOCK_BYTES + 1])
def test_damage_in_the_last_byte_of_a_large_file_is_detected(root: Path, tmp_path: Path, size: int) -> None:
    data = bytes(size - 1) + b"\1"
    handle = RelativeFileStateHandle("big", size)
    (root / "big").write_bytes(data)
    reader = DirectoryReader(str(root), {"big": (size, crc32c(data))})
    reader.copy_to(handle, str(tmp_path / "whole"))
    assert (tmp_path / "whole").read_bytes() == data
    (root / "big").write_bytes(bytes(size))
    assert failure(reader, handle, tmp_path).kind == "checksum-mismatch"


@pytest.mark.parametrize(
    "path", ["../../secret", "/etc/passwd", "..", "sub/../../../secret", "", "data\0", "x" * 300, "x" * 10_000]
)
def test_hostile_relative_paths_are_refused(root: Path, tmp_path: Path, path: str) -> None:
    error = failure(DirectoryReader(str(root)), RelativeFileStateHandle(path, len(DATA)), tmp_path)
    assert isinstance(error, InvalidRequestError)
    assert error.kind in {"outside-root", "bad-path"}


def test_escaped_dots_are_an_ordinary_name(root: Path, tmp_path: Path) -> None:
    handle = RelativeFileStateHandle("%2e%2e/%2e%2e/secret", len(DATA))
    assert failure(DirectoryReader(str(root)), handle, tmp_path).kind == "missing-file"


def test_absolute_paths_outside_the_roots_are_refused(root: Path, tmp_path: Path) -> None:
    own = FileStateHandle(f"file:{root}/data", len(DATA))
    shared = FileStateHandle(f"{root.parent}/shared/sst", 100)
    outside = FileStateHandle(str(tmp_path / "secret"), len(DATA))
    narrow, wide = DirectoryReader(str(root)), DirectoryReader(root.as_uri(), allowed_root=str(root.parent))
    assert bytes(narrow.read(own)) == bytes(wide.read(own)) == DATA
    assert bytes(wide.read(shared)) == DATA[:100]
    for reader, handle in [(narrow, shared), (narrow, outside), (wide, outside)]:
        assert failure(reader, handle, tmp_path).kind == "outside-root"
    climbing = FileStateHandle(f"{root}/../../secret", len(DATA))
    assert failure(wide, climbing, tmp_path).kind == "outside-root"
    sibling = FileStateHandle(f"{root}0/data", len(DATA))
    assert failure(narrow, sibling, tmp_path).kind == "outside-root"
    relative = FileStateHandle("data", len(DATA))
    assert failure(narrow, relative, tmp_path).kind == "bad-path"


@pytest.mark.parametrize("uri", ["s3://bucket/data", "http://169.254.169.254/x", "mock:/data"])
def test_the_error_names_another_scheme(root: Path, tmp_path: Path, uri: str) -> None:
    error = failure(DirectoryReader(str(root)), FileStateHandle(uri, 1), tmp_path)
    assert isinstance(error, UnsupportedError)
    assert (error.kind, uri in str(error)) == ("unknown-scheme", True)


def test_links_and_special_files_are_not_followed(root: Path, tmp_path: Path) -> None:
    (root / "link").symlink_to(tmp_path / "secret")
    (root / "inside").symlink_to("data")
    (root / "away").symlink_to(tmp_path)
    (root / "directory").mkdir()
    os.mkfifo(root / "fifo")
    for path in ("link", "inside", "away/secret", "directory", "fifo", "data/x"):
        error = failure(DirectoryReader(str(root)), RelativeFileStateHandle(path, len(DATA)), tmp_path)
        assert isinstance(error, CorruptStateError), path
        assert error.kind == "not-a-regular-file"


def test_the_root_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(root)
    assert bytes(DirectoryReader(str(tmp_path / "latest")).read(HANDLE)) == DATA


def test_a_copy_does_not_write_through_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").symlink_to(tmp_path / "elsewhere")
    for handle in (HANDLE, ByteStreamStateHandle("inline", b"x")):
        with pytest.raises(StatelibError):
            DirectoryReader(str(root)).copy_to(handle, str(tmp_path / "copy"))
    assert not (tmp_path / "elsewhere").exists()


def test_inline_handles_need_no_directory() -> None:
    reader = DirectoryReader("/does/not/exist")
    assert bytes(reader.read_range(ByteStreamStateHandle("../odd name", b"abc"), 1, 3)) == b"bc"
