"""SIGTERM or SIGHUP unwinds the main thread, so that every ``finally`` runs, and then ends the process."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDINGS = (signal.SIGTERM, signal.SIGHUP)
"""What a driver or an executor is told to end with; what Spark's daemon tells its Python workers when their JVM has
ended, however it did."""


@contextmanager
def unwound_by_signal() -> Iterator[None]:
    """The first of ``ENDINGS`` raises SystemExit here; it is delivered again when all is cleaned up.

    A snapshot is being written by another thread then, and cancelled by the one that waits for it. What is ignored
    (``nohup``) stays so. On other threads than the main one this changes nothing: Python does not allow it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []

    def unwind(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)
        if len(arrived) == 1:
            raise SystemExit(128 + number)

    before = {number: signal.getsignal(number) for number in ENDINGS}
    before = {number: handler for number, handler in before.items() if handler != signal.SIG_IGN}
    for number in before:
        signal.signal(number, unwind)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if arrived:
            os.kill(os.getpid(), arrived[0])
