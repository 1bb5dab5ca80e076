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

for _ in range(5):
    fill()
before = faults()
fill()
print(faults() - before, os.environ.get("MIMALLOC_PURGE_DELAY"))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_kept_memory_is_used_again_without_page_faults() -> None:
    count, delay = _faults("keep")
    assert count * 4 < _faults()[0], "there are few faults in any case if pages are huge"
    assert delay == str(UNUSED_MS)


def _faults(*words: str) -> tuple[int, str]:
    """Return the page faults of memory that is allocated again, and the setting of Arrow's allocator."""
    program = [sys.executable, "-c", _PROGRAM, *words]
    count, delay = subprocess.run(program, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split()
    return int(count), delay
