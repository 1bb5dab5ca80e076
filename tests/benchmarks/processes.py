"""The kernel's counters of this process and of everything that it started. They come from ``/proc``, so on Linux
only."""

import contextlib
import os
import threading
from collections.abc import Collection, Iterator
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


def tree(root: int | None = None, without: Collection[int] = ()) -> list[Process]:
    """Return ``root`` (this process by default) and all its live descendants, but not the processes ``without`` and
    their descendants."""
    processes = {process.pid: process for process in _all() if process.pid not in without}
    members: set[int] = {root or os.getpid()}
    grown = True
    while grown:
        more = {p.pid for p in processes.values() if p.parent in members} - members
        members |= more
        grown = bool(more)
    return [processes[pid] for pid in sorted(members) if pid in processes]


@dataclass(frozen=True)
class Usage:
    """The use of a tree of processes: processor seconds, the bytes that the kernel read from the disk and wrote to
    it for them, and the largest sum of their memory peaks."""

    cpu_s: float
    read_bytes: int
    written_bytes: int
    peak_bytes: int


class TreeUsage:
    """A context that counts what a process (this one by default) and its descendants use, ended ones included.

    A thread reads the tree all the time and keeps the last figures of each process, because the time of Spark's
    Python workers is lost when they end (their daemon ignores SIGCHLD), and Spark ends idle ones. A process that
    lives less than ``look_s`` seconds may be missed. ``without``: processes that do not count, with their descendants,
    such as a server of object storage."""

    def __init__(self, root: int | None = None, look_s: float = _LOOK_S, *, without: Collection[int] = ()) -> None:
        self._root, self._look_s, self._without = root, look_s, without
        self._last: dict[tuple[int, int], tuple[float, int, int]] = {}
        self._peak = 0
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

    def usage(self) -> Usage:
        """Return what the tree has used so far."""
        with self._lock:
            processes = tree(self._root, self._without)
            for p in processes:
                cpu_s, read, written = self._last.get((p.pid, p.started), (0.0, 0, 0))
                now_read, now_written = _disk_bytes(p.pid)
                self._last[p.pid, p.started] = max(cpu_s, p.cpu_s), max(read, now_read), max(written, now_written)
            self._peak = max(self._peak, sum(peak_bytes(p.pid) for p in processes))
            cpu, reads, writes = zip((0.0, 0, 0), *self._last.values(), strict=True)
            return Usage(sum(cpu), sum(reads), sum(writes), self._peak)

    def reset_peak(self) -> None:
        """Forget the memory peaks so far."""
        with self._lock:
            reset_peaks(self._root)
            self._peak = 0

    def _watch(self) -> None:
        while not self._done.wait(self._look_s):
            self.usage()


class CpuClock(TreeUsage):
    """A context; calling it returns the processor seconds of the tree so far, ended processes included."""

    def __call__(self) -> float:
        return self.usage().cpu_s


def peak_bytes(pid: int) -> int:
    """Return the most physical memory that the process has had since :func:`reset_peaks`; 0 if it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def reset_peaks(root: int | None = None) -> None:
    """Reset the memory peaks of the whole tree."""
    for process in tree(root):
        with contextlib.suppress(OSError):
            Path(f"/proc/{process.pid}/clear_refs").write_text(_RESET_PEAK)


def _disk_bytes(pid: int) -> tuple[int, int]:
    """Return the bytes that the process has read from the disk and written to it; zeros if it has ended."""
    with contextlib.suppress(OSError):
        lines = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        return int(lines["read_bytes"]), int(lines["write_bytes"])
    return 0, 0


def _all() -> Iterator[Process]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            name, _, rest = (entry / "stat").read_text().rpartition(")")
            fields = rest.split()
            ticks = int(fields[11]) + int(fields[12])
            yield Process(int(entry.name), int(fields[19]), int(fields[1]), name.partition("(")[2], ticks / _TICKS)
