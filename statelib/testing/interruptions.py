"""What ends code between two of its steps: a thread that cannot start, and a signal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol


class Counted(Protocol):
    """``count``: how many of the places passed by so far."""

    count: int


@contextmanager
def no_thread_starts(at: int | None) -> Iterator[Counted]:
    """Let the start of the thread number ``at`` (from 0; None: of no thread) fail, and of every later one, as where a
    host has no room for more."""
    starts = _Count(at)
    real = threading._start_new_thread  # type: ignore[attr-defined]  # what the class Thread calls, and nothing else

    def start(*arguments: Any) -> Any:
        if starts.reached():
            raise RuntimeError("can't start new thread")
        return real(*arguments)

    threading._start_new_thread = start  # type: ignore[attr-defined]
    try:
        yield starts
    finally:
        threading._start_new_thread = real  # type: ignore[attr-defined]


@contextmanager
def signal_arrives(at: int | None) -> Iterator[Counted]:
    """Let this thread raise SystemExit at its step number ``at`` (from 0; None: at no step), once, as the handler of a
    signal may. Steps are where Python runs handlers: when a function is entered, and when one of C's has returned.

    Steps of the module ``logging`` do not count. An exception between two of them can leave the lock of a handler held
    in this process, which goes on here, and then each later thread that logs would wait for ever."""
    steps = _Count(at)

    def step(frame: FrameType, event: str, _argument: Any) -> None:
        if event not in {"call", "c_return"} or frame.f_globals.get("__name__") == "logging":
            return
        if steps.reached(once=True):
            sys.setprofile(None)
            raise SystemExit("a signal")

    sys.setprofile(step)
    try:
        yield steps
    finally:
        sys.setprofile(None)


class _Count:
    def __init__(self, at: int | None) -> None:
        self.count = 0
        self._at = at
        self._lock = threading.Lock()

    def reached(self, *, once: bool = False) -> bool:
        """Count one more; whether it is the one that is waited for, or a later one."""
        with self._lock:
            number, self.count = self.count, self.count + 1
        return self._at is not None and (number == self._at if once else number >= self._at)
