"""The handling of SIGTERM and SIGHUP: the main thread is unwound, so that every ``finally`` runs, and then the process
ends."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDINGS = (signal.SIGTERM, signal.SIGHUP)
"""The signals that end a driver or an executor. Spark's daemon also sends one to its Python workers when their JVM has
ended."""


@contextmanager
def unwound_by_signal() -> Iterator[None]:
    """Raise SystemExit in the block at the first signal of ``ENDINGS``. After the block has cleaned up, the signal is
    sent to the process again.

    If another thread is writing a snapshot, the main thread, which waits for it, cancels it. Signals that are ignored
    (``nohup``) stay ignored. In a thread other than the main thread nothing is changed, because Python allows signal
    handlers only there."""
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
