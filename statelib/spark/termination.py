"""A polite kill: SIGTERM unwinds the main thread, so that every ``finally`` runs, and then ends the process."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

KILLED = 128 + signal.SIGTERM
"""The exit status of a process that SIGTERM ended."""


@contextmanager
def unwound_by_sigterm() -> Iterator[None]:
    """SIGTERM raises SystemExit here, once; the signal is delivered again when all is cleaned up.

    A snapshot is being written by another thread then, and cancelled by the one that waits for it.
    On other threads than the main one this changes nothing: Python does not allow it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived = False

    def unwind(_number: int, _frame: FrameType | None) -> None:
        nonlocal arrived
        if not arrived:
            arrived = True
            raise SystemExit(KILLED)

    before = signal.signal(signal.SIGTERM, unwind)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)
        if arrived:
            os.kill(os.getpid(), signal.SIGTERM)
