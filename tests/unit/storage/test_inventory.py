"""The files that exist are compared with those that should exist."""

import os
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.checkpoint import FileRecord
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.filesystem.inventory import list_files, verify_files
from statelib.storage.ports.inventory import FileFinding, StoredFile
from statelib.wire.checksum import crc32c

DATA = b"0123456789" * 200_000
RANGE = KeyGroupRange(0, 63)


def record(path: str, data: bytes = DATA) -> FileRecord:
    return FileRecord(path, len(data), crc32c(data), 0, RANGE)


def test_findings_are_in_order_and_name_the_problem(tmp_path: Path) -> None:
    flipped = bytearray(DATA)
    flipped[-1] ^= 1
    for name, data in {"good": DATA, "short": DATA[:-1], "flipped": flipped, "absolute": DATA}.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "link").symlink_to("good")
    os.mkfifo(tmp_path / "fifo")
    paths = ["good", "gone", "short", "flipped", f"file:{tmp_path}/absolute", "link", "fifo", "good/x"]
    verification = verify_files(str(tmp_path), [record(path) for path in paths], read_data=True)
    size, crc = len(DATA), crc32c(DATA)
    assert verification[0] == FileFinding("good", RANGE, size, size, crc, crc, "")
    assert verification[1] == FileFinding("gone", RANGE, size, None, crc, None, "missing")
    assert verification[2] == FileFinding("short", RANGE, size, size - 1, crc, None, "size")
    assert verification[3] == FileFinding("flipped", RANGE, size, size, crc, crc32c(bytes(flipped)), "checksum")
    assert [finding.problem for finding in verification[4:]] == ["", "missing", "missing", "missing"]
    assert [finding.path for finding in verification] == paths


def test_sizes_alone_are_verified_without_reading(tmp_path: Path) -> None:
    (tmp_path / "flipped").write_bytes(bytes(len(DATA)))
    (tmp_path / "empty").touch()
    verification = verify_files(
        str(tmp_path), [record("flipped"), record("empty"), record("empty", b"")], read_data=False
    )
    assert [(f.problem, f.actual_size, f.actual_crc) for f in verification] == [
        ("", len(DATA), None),
        ("size", 0, None),
        ("", 0, None),
    ]


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "file:/etc/passwd"])
def test_files_outside_the_root_are_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        verify_files(str(tmp_path), [record("gone"), record(path)], read_data=True)
    assert caught.value.kind == "outside-root"


def test_an_allowed_root_widens_absolute_paths(tmp_path: Path) -> None:
    (tmp_path / "shared").write_bytes(DATA)
    verification = verify_files(f"{tmp_path}/chk-1", [record(f"{tmp_path}/shared")], True, allowed_root=str(tmp_path))
    assert [f.problem for f in verification] == [""]


def test_list_files_returns_path_size_time_and_kind(tmp_path: Path) -> None:
    away = tmp_path / "away"
    root = tmp_path / "root"
    (root / "chk-1" / "deep").mkdir(parents=True)
    (root / "empty").mkdir()
    away.mkdir()
    (away / "x").touch()
    for path, size in {"chk-1/b": 3, "chk-1/deep/c": 0, "a": 1}.items():
        (root / path).write_bytes(bytes(size))
        os.utime(root / path, ns=(0, 1_700_000_000_123_999_999))
    (root / "link").symlink_to(away)
    files = list_files(f"file:{root}")
    assert [(f.path, f.regular) for f in files] == [
        ("a", True),
        ("chk-1/b", True),
        ("chk-1/deep/c", True),
        ("link", False),
    ]
    assert files[1] == StoredFile("chk-1/b", 3, 1_700_000_000_123, True)


def test_listing_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        list_files(str(tmp_path / "missing"))


def test_a_directory_that_is_removed_during_a_listing_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Garbage collection may remove directories during a listing; the rest must still be listed."""
    for name in ("chk-1", "chk-2"):
        (tmp_path / name).mkdir()
    (tmp_path / "chk-2" / "_metadata").touch()
    real = os.open

    def opened(path: str, *arguments: int, **options: int) -> int:
        if path == "chk-1":
            (tmp_path / "chk-1").rmdir()
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "open", opened)
    assert [file.path for file in list_files(str(tmp_path))] == ["chk-2/_metadata"]
