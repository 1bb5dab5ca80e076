"""Functions that find and kill processes with their children, end a program cleanly, and pick unused ports."""

import contextlib
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import psutil


def unused_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 on which no process listens right now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


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
