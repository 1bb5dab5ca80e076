"""The kernel's counters of this process and of everything that it started. They come from ``/proc``, so on Linux
only."""

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_TICKS = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"
_LOOK_S = 0.5


@dataclass(frozen=True)
class Process:
    """A process. ``started``: ticks since boot, which distinguish two processes with one ``pid``; ``cpu_s``: its own
    user and system time."""

    pid: int
    started: int
    parent: int
    command: str
    cpu_s: float


def tree(root: int | None = None) -> list[Process]:
    """Return ``root`` (this process by default) and all its live descendants."""
    processes = {process.pid: process for process in _all()}
    members: set[int] = {root or os.getpid()}
    grown = True
    while grown:
        more = {p.pid for p in processes.values() if p.parent in members} - members
        members |= more
        grown = bool(more)
    return [processes[pid] for pid in sorted(members) if pid in processes]


class CpuClock:
    """A context; calling it returns the processor seconds of the tree so far, ended processes included.

    A thread reads the tree all the time and keeps the last figure of each process, because the time of Spark's
    Python workers is lost when they end (their daemon ignores SIGCHLD), and Spark ends idle ones. A process that
    lives less than half a second may be missed."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int], float] = {}
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def __call__(self) -> float:
        with self._lock:
            self._last |= {(p.pid, p.started): p.cpu_s for p in tree()}
            return sum(self._last.values())

    def _watch(self) -> None:
        while not self._done.wait(_LOOK_S):
            self()


def peak_bytes(pid: int) -> int:
    """Return the most physical memory that the process has had since :func:`reset_peaks`; 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def reset_peaks() -> None:
    """Reset the memory peaks of the whole tree."""
    for process in tree():
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK)


def _all() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            name, _, rest = (entry / "stat").read_text().rpartition(")")
            fields = rest.split()
            ticks = int(fields[11]) + int(fields[12])
            yield Process(int(entry.name), int(fields[19]), int(fields[1]), name.partition("(")[2], ticks / _TICKS)
