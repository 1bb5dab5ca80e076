"""Freed memory stays with the process that keeps it."""

import subprocess
import sys

import pytest

from statelib.spark.session.kept_memory import UNUSED_MS
from tests.support.worlds import CHECKOUT

_MEBIBYTES = 100
_PROGRAM = f"""
import os
import resource
import sys
import threading
from statelib.spark.session.kept_memory import keep_freed_memory

if "keep" in sys.argv:
    keep_freed_memory(os.environ)

import numpy as np
import pyarrow as pa

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def fill():
    np.ones({_MEBIBYTES} << 20, np.int8)
    memory = pa.allocate_buffer({_MEBIBYTES} << 20)
    np.frombuffer(memory, np.int8).fill(1)

def faults_in_a_thread():
    # a new thread that needs less memory than others have freed
    counts = []
    def work():
        before = faults()
        np.ones({_MEBIBYTES // 4} << 20, np.int8)
        counts.append(faults() - before)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return counts[0]

for _ in range(5):
    fill()
before = faults()
fill()
print(faults() - before, faults_in_a_thread(), os.environ.get("MIMALLOC_PURGE_DELAY"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_kept_memory_is_used_again_without_page_faults() -> None:
    with_setting, without = _faults("keep"), _faults()
    assert with_setting[0] * 4 < without[0], "there are few faults in any case if pages are huge"
    assert with_setting[1] * 4 < without[1]
    assert with_setting[2] == str(UNUSED_MS)


def _faults(*words: str) -> tuple[int, int, str]:
    """Return the page faults of memory that is allocated again, those of a thread, and the setting of Arrow's
    allocator."""
    program = [sys.executable, "-c", _PROGRAM, *words]
    printed = subprocess.run(program, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split()
    return int(printed[0]), int(printed[1]), printed[2]
