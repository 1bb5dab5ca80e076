"""SQLite's commit is durable when it is acknowledged: the calls of a process that commits, as the kernel saw them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from statelib.catalog.catalog import Catalog
from tests.support.worlds import CHECKOUT

WRITES = """
import sys
from statelib.catalog.catalog import Catalog
from statelib.model.ids import CheckpointId, PipelineName
Catalog(sys.argv[1], lambda: 0).cleanup.unpin(PipelineName("p"), "nobody")
Catalog(sys.argv[1], lambda: 0).cleanup.confirm_checkpoints(PipelineName("p"), [CheckpointId(1)])
"""
CALLS = "trace=openat,fsync,fdatasync,unlink,write"


def test_the_directory_is_synced_after_the_journal_is_removed(tmp_path: Path) -> None:
    """The removal is the commit. If it is not synced, the journal exists again after a power cut, and the next
    reader rolls back."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    url = f"sqlite:///{tmp_path}/catalog.db"
    Catalog(url, lambda: 0).migrate()
    traced = ["strace", "-f", "-y", "-e", CALLS, "-o", str(tmp_path / "calls")]
    command = [*traced, sys.executable, "-c", WRITES, url]
    ran = subprocess.run(command, check=False, cwd=CHECKOUT, capture_output=True, text=True)
    if "PTRACE" in ran.stderr:
        pytest.skip("this host does not let processes be traced")
    assert ran.returncode == 0, ran.stderr
    calls = (tmp_path / "calls").read_text().splitlines()
    removals = [number for number, call in enumerate(calls) if re.search(r'unlink\(".*catalog\.db-journal"', call)]
    assert removals, "nothing was committed"
    directory = re.compile(rf"f(data)?sync\(\d+<{re.escape(str(tmp_path))}>\)")
    for number in removals:
        assert any(directory.search(call) for call in calls[number : number + 4]), calls[number : number + 4]
