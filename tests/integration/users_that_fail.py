"""User functions that fail in different ways."""

import os
import signal

import pyarrow as pa


def die(_events: pa.Table, _state: pa.Table) -> pa.Table:
    """Kill this process, as the kernel does with one that is out of memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def refuse(_events: pa.Table, _state: pa.Table) -> pa.Table:
    """Raise an error of the user's own."""
    raise ValueError("not this one")
