"""What a process keeps on its host's disk goes with it, or with the next one."""

import signal
import subprocess
import sys
from pathlib import Path

from statelib.storage.scratch import PREFIX, scratch_directory

KILLED = (
    "import os, signal, sys; from statelib.storage.scratch import scratch_directory\n"
    "with scratch_directory(sys.argv[1], 'a') as directory:\n"
    "    open(directory + '/file', 'w').close()\n"
    "    os.kill(os.getpid(), signal.SIGKILL)"
)


def killed(parent: Path) -> None:
    ended = subprocess.run([sys.executable, "-c", KILLED, str(parent)], check=False)
    assert ended.returncode == -signal.SIGKILL


def test_it_is_empty_and_gone_afterwards(tmp_path: Path) -> None:
    with scratch_directory(str(tmp_path), "a") as directory:
        assert list(Path(directory).iterdir()) == []
        (Path(directory) / "file").touch()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_and_what_is_held_stays(tmp_path: Path) -> None:
    (tmp_path / "statelib-else").mkdir()
    with scratch_directory(str(tmp_path), "held") as held:
        killed(tmp_path)
        assert len(list(tmp_path.glob(f"{PREFIX}*"))) == 2
        with scratch_directory(str(tmp_path), "next") as other:
            assert {str(path) for path in tmp_path.glob(f"{PREFIX}*")} == {held, other}
    assert [path.name for path in tmp_path.iterdir()] == ["statelib-else"]
