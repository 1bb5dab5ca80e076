"""Processes with their children, and ports for them."""

import contextlib
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import psutil


def unused_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on right now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def family(pid: int) -> list[psutil.Process]:
    """A process and everything that it started, the process last; empty if it is gone."""
    try:
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    except psutil.NoSuchProcess:
        return []


def kill(member: psutil.Process) -> None:
    """SIGKILL. psutil compares start times, so that a reused process id is not hit."""
    try:
        if member.is_running() and member.status() != psutil.STATUS_ZOMBIE:
            member.kill()
    except psutil.NoSuchProcess:
        pass


ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def ended_once() -> Iterator[None]:
    """The first Ctrl-C, SIGTERM or SIGHUP raises KeyboardInterrupt; those after it do not disturb the cleaning up."""

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
