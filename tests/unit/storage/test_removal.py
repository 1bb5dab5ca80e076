"""Removing files: only below the roots, never through a link, and as often as one likes."""

import os
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError
from statelib.storage.filesystem.removal import FileSystemRemover
from statelib.storage.registry import PLACES

REMOVER = FileSystemRemover()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "state" / "p" / "chk-1").mkdir(parents=True)
    (tmp_path / "precious").write_text("x")
    return tmp_path / "state"


def test_removing_a_file_twice_reports_it_once(root: Path):
    file = root / "p" / "chk-1" / "a"
    file.write_text("x")
    assert REMOVER.remove_file(f"file://{file}", [str(root)])
    assert not file.exists()
    assert not REMOVER.remove_file(str(file), [str(root)])
    assert not REMOVER.remove_file(str(root / "no" / "such" / "place"), [str(root)])


@pytest.mark.parametrize(
    "path",
    [
        "{root}/../precious",
        "{root}/p/../../precious",
        "{parent}/precious",
        "{root}",
        "{root}/",
        "{root}x/a",
        "p/a",
        "/",
    ],
)
@pytest.mark.parametrize("what", ["remove_file", "remove_directory"])
def test_files_outside_the_roots_are_never_removed(root: Path, path: str, what: str):
    text = path.format(root=root, parent=root.parent)
    with pytest.raises(InvalidRequestError) as refusal:
        getattr(REMOVER, what)(text, [str(root)])
    assert refusal.value.kind in ("outside-root", "bad-path")
    assert (root.parent / "precious").exists()
    assert root.is_dir()
    assert not PLACES.is_below(text, [str(root)])


def test_without_a_root_everything_is_refused(root: Path):
    with pytest.raises(InvalidRequestError):
        REMOVER.remove_file(str(root / "p"), [])


def test_another_scheme_is_refused(root: Path):
    with pytest.raises(StatelibError) as refusal:
        REMOVER.remove_file("s3://bucket/key", [str(root)])
    assert refusal.value.kind == "unknown-scheme"


def test_links_are_removed_and_never_followed(root: Path):
    (root / "p" / "link").symlink_to(root.parent / "precious")
    (root / "p" / "way").symlink_to(root.parent)
    assert REMOVER.remove_file(str(root / "p" / "link"), [str(root)])
    with pytest.raises(CorruptStateError) as refusal:
        REMOVER.remove_file(str(root / "p" / "way" / "precious"), [str(root)])
    assert refusal.value.kind == "not-a-regular-file"
    assert (root.parent / "precious").read_text() == "x"


def test_a_directory_is_not_removed_as_a_file(root: Path):
    with pytest.raises(CorruptStateError):
        REMOVER.remove_file(str(root / "p"), [str(root)])
    assert (root / "p" / "chk-1").is_dir()


def test_a_directory_is_removed_only_if_it_is_empty(root: Path):
    directory = root / "p" / "chk-1"
    (directory / "a").write_text("x")
    assert not REMOVER.remove_directory(str(directory), [str(root)])
    (directory / "a").unlink()
    assert REMOVER.remove_directory(str(directory), [str(root)])
    assert not REMOVER.remove_directory(str(directory), [str(root)])


def test_the_time_is_read_from_the_storage_and_no_file_is_left(root: Path):
    before = os.listdir(root)
    (root / "p" / "older").write_text("x")
    older_ms = (root / "p" / "older").stat().st_mtime_ns // 1_000_000
    assert REMOVER.now_ms(str(root)) >= older_ms
    (root / ".clock.0.tmp").write_text("left by a crash")
    assert REMOVER.now_ms(str(root)) >= older_ms
    assert sorted(os.listdir(root)) == sorted([*before, ".clock.0.tmp"])


def test_a_missing_directory_has_no_files(root: Path):
    assert REMOVER.list_files(str(root / "nothing")) == []
