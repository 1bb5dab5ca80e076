"""What the kernel has counted for this process and everything it started. Linux only: it reads ``/proc``."""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_RESET_PEAK = "5"


@dataclass(frozen=True)
class Process:
    """``cpu_s``: user and system seconds, those of ended children that were waited for included."""

    pid: int
    parent: int
    command: str
    cpu_s: float


def tree(root: int | None = None) -> list[Process]:
    """``root`` (this process by default) and all its live descendants."""
    found = {process.pid: process for process in _all()}
    members: set[int] = {root or os.getpid()}
    grown = True
    while grown:
        more = {p.pid for p in found.values() if p.parent in members} - members
        members |= more
        grown = bool(more)
    return [found[pid] for pid in sorted(members) if pid in found]


def cpu_seconds() -> float:
    """Processor time of the tree so far. A process that ends moves its time to the parent that waits for it."""
    return sum(process.cpu_s for process in tree())


def peak_bytes(pid: int) -> int:
    """The most physical memory the process has held since :func:`reset_peaks`; 0 if it is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def reset_peaks() -> None:
    """From now on peaks are counted anew, in the whole tree."""
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
            ticks = sum(int(field) for field in fields[11:15])
            yield Process(int(entry.name), int(fields[1]), name.partition("(")[2], ticks / _TICKS)
