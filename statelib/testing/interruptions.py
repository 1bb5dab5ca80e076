"""Interruptions of code between two of its steps: a thread that cannot start, and a signal."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Protocol


class Counted(Protocol):
    """A counter. ``count``: the number of thread starts or steps so far."""

    count: int


@contextmanager
def no_thread_starts(at: int | None) -> Iterator[Counted]:
    """Let the start of this project's thread number ``at``, counted from 0, and of every later one fail, like on a host
    that cannot run more threads. If ``at`` is None, all threads start. The yielded object counts the attempted starts.
    Other threads of the process, such as those of a server that a test has started, are not concerned."""
    starts = _Count(at)
    real = threading._start_new_thread  # type: ignore[attr-defined]  # only threading.Thread calls it

    def start(run: Callable[[], None], *arguments: Any) -> Any:
        if run.__self__.name.startswith("statelib-") and starts.reached():  # type: ignore[attr-defined]
            raise RuntimeError("can't start new thread")
        return real(run, *arguments)

    threading._start_new_thread = start  # type: ignore[attr-defined]
    try:
        yield starts
    finally:
        threading._start_new_thread = real  # type: ignore[attr-defined]


@contextmanager
def signal_arrives(at: int | None) -> Iterator[Counted]:
    """Raise SystemExit once in this thread, at its step number ``at``, counted from 0, like the handler of a signal
    may. If ``at`` is None, nothing is raised. The yielded object counts the steps.

    The steps are moments at which Python runs signal handlers: the entry of a Python function and the return of a
    function written in C. Steps within the module ``logging`` do not count: the exception could leave the lock of a
    log handler held, and this process, which continues, would then block each later thread that logs."""
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
        """Count one more. Return whether its number is ``at`` or, unless ``once``, a later number."""
        with self._lock:
            number, self.count = self.count, self.count + 1
        return self._at is not None and (number == self._at if once else number >= self._at)
