"""The files of a process on its host's disk are removed at its end, or by the next process."""

import errno
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError, RetryableError
from statelib.storage.filesystem.failures import storage_errors
from statelib.storage.local.scratch import PREFIX, scratch_directory

KILLED = (
    "import os, signal, sys; from statelib.storage.local.scratch import scratch_directory\n"
    "with scratch_directory(sys.argv[1], 'a') as directory:\n"
    "    open(directory + '/file', 'w').close()\n"
    "    os.kill(os.getpid(), signal.SIGKILL)"
)


def killed(parent: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(parent)], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_a_scratch_directory_is_empty_and_removed_afterwards(tmp_path: Path) -> None:
    with scratch_directory(str(tmp_path), "a") as directory:
        assert list(Path(directory).iterdir()) == []
        (Path(directory) / "file").touch()
    assert list(tmp_path.iterdir()) == []


def test_directories_of_killed_processes_are_removed_and_locked_ones_kept(tmp_path: Path) -> None:
    (tmp_path / "statelib-else").mkdir()
    with scratch_directory(str(tmp_path), "held") as held:
        killed(tmp_path)
        assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 2
        with scratch_directory(str(tmp_path), "next") as other:
            assert {str(path) for path in tmp_path.glob(f"{PREFIX}*")} == {held, other}
    assert [path.name for path in tmp_path.iterdir()] == ["statelib-else"]


@pytest.mark.parametrize(("parent", "setting"), [("given", "STATELIB_WORK"), (None, "TMPDIR")])
def test_the_error_names_an_unwritable_directory_and_its_setting(
    parent: str | None, setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = str(tmp_path / "nowhere")
    monkeypatch.setattr("tempfile.tempdir", missing)
    with (
        pytest.raises(InvalidRequestError, match=f"scratch space {missing}: No such file") as caught,
        scratch_directory(parent and missing, "a"),
    ):
        pass
    assert caught.value.kind == "no-scratch-directory"
    assert setting in caught.value.hint


def _written(file: Path) -> None:
    file.write_bytes(bytes(1000))


def _stored(file: Path) -> None:
    with storage_errors(f"writing {file}"):
        file.write_bytes(bytes(1000))


def _on_a_full_disk(write: Callable[[Path], None], file: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        write(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("write", [_written, _stored])
def test_a_full_disk_is_a_typed_error(write: Callable[[Path], None], tmp_path: Path) -> None:
    with (
        pytest.raises(RetryableError, match="File too large") as caught,
        scratch_directory(str(tmp_path), "a") as place,
    ):
        _on_a_full_disk(write, Path(place) / "file")
    assert caught.value.kind == "scratch-full"
    assert "STATELIB_WORK" in caught.value.hint
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError(errno.ENOENT, "gone", "/elsewhere"), OSError(errno.ENOSPC, "full", "/elsewhere"), KeyError("x")],
)
def test_other_errors_are_raised_unchanged(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as caught, scratch_directory(str(tmp_path), "a"):
        raise error
    assert caught.value is error
