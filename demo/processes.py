"""Functions that find and kill processes with their children, end a program cleanly, and pick unused ports."""

import contextlib
import random
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import psutil

# Linux gives a port from 32768 up to every connection and to every program that asks for any port, and macOS one from
# 49152 up. No system gives one from this range, so that a port stays unused until the program that it is for starts.
_NEVER_GIVEN = range(10_000, 32_768)


def unused_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that no process uses right now, and that the system gives to no process by itself."""
    with contextlib.ExitStack() as stack:
        unused: list[int] = []
        while len(unused) < count:
            port = random.choice(_NEVER_GIVEN)  # noqa: S311
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
                unused.append(port)
        return unused


def family(pid: int) -> list[psutil.Process]:
    """Return all descendants of a process, followed by the process itself; an empty list if it is gone."""
    try:
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return []


def kill(member: psutil.Process) -> None:
    """Send SIGKILL to a process, unless it has ended. psutil compares start times, so that another process with a
    reused id is not killed."""
    try:
        if member.is_running() and member.status() != psutil.STATUS_ZOMBIE:
            member.kill()
    except psutil.NoSuchProcess:
        pass


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ended_once() -> Iterator[None]:
    """Raise KeyboardInterrupt in the block at the first Ctrl-C, SIGTERM or SIGHUP, and ignore later ones, so that they
    do not interrupt the cleanup."""

    def end(_number: int, _frame: FrameType | None) -> None:
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
