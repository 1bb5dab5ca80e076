"""Run one entrant for all days, in processes of its own, and count what the days cost."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import polars as pl

from tests.benchmarks.checks import state_of
from tests.benchmarks.measure import SETTLE_S
from tests.benchmarks.plots import CHECKOUT
from tests.benchmarks.processes import TreeUsage, Usage
from tests.benchmarks.state_columns import COLUMNS
from tests.benchmarks.thirty_days.keeper import LOCAL, Entrant, Mode

RIVALS = CHECKOUT / ".work" / "rivals" / "bin" / "python"
LOOK_S = 0.1
WAIT_S = 30


@dataclass
class Outcome:
    """The cost of an entrant in one mode. The lists have a figure per day, without day 0, which fills the state.
    ``reading_cpu_s``: for reading the whole state afterwards; ``stored_bytes``: what is on the storage at the end;
    ``load``: that of the machine in the mean; ``trouble``: why there are no figures, or why they do not count."""

    name: str
    mode: Mode
    cpu_s: list[float] = field(default_factory=list)
    read_bytes: list[int] = field(default_factory=list)
    written_bytes: list[int] = field(default_factory=list)
    peak_bytes: int = 0
    stored_bytes: int = 0
    reading_cpu_s: float = 0.0
    load: float = 0.0
    trouble: str = ""

    @property
    def median_cpu_s(self) -> float:
        return median(self.cpu_s)


class Child:
    """The process of an entrant, and what it has used."""

    def __init__(self, entrant: Entrant, root: Path, mode: Mode) -> None:
        python = str(RIVALS) if entrant.is_apart else sys.executable
        words = [python, "-m", "tests.benchmarks.thirty_days.child", entrant.name, str(root), mode]
        self._log = root / "log.txt"
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=CHECKOUT
            )
        self._usage = TreeUsage(self._process.pid, LOOK_S)

    def __enter__(self) -> "Child":
        self._usage.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._usage.__exit__(None, None, None)

    def ask(self, *words: object) -> None:
        """Send a command and wait for the answer. Raises RuntimeError with the end of the log if the process ends."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if answer != "done\n":
            raise RuntimeError(self._log.read_text().strip()[-300:])

    def end(self) -> None:
        """End the process in an orderly way."""
        self.ask("end")
        self._process.wait(WAIT_S)

    def usage(self) -> Usage:
        return self._usage.usage()

    def reset_peak(self) -> None:
        self._usage.reset_peak()


def run(entrant: Entrant, events: Path, root: Path, mode: Mode, days: int) -> Outcome:
    """Return what the entrant used for the days after day 0, and whether its state is right at the end. ``root``: a
    directory for its files; ``events``: that of the batches, one directory per day."""
    outcome = Outcome(entrant.name, mode)
    if entrant.is_apart and not RIVALS.exists():
        outcome.trouble = "not measured: its package is not there, make rivals installs it in .work/rivals"
        return outcome
    root.mkdir(parents=True)
    (root / "data").symlink_to(events.parent)
    batches = sorted(events.iterdir())[: days + 1]
    loads = []
    try:
        for usage in _days(entrant, batches, root, mode):
            loads.append(os.getloadavg()[0])
            _add(outcome, usage)
        outcome.stored_bytes = _stored_bytes(root)
        outcome.reading_cpu_s = _exported(entrant, root, mode)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        outcome.trouble = f"FAILED: {str(error)[-300:]}".replace("\n", " ")
        return outcome
    outcome.load = sum(loads) / len(loads)
    outcome.trouble = _difference(batches, root / "export")
    return outcome


def _days(entrant: Entrant, batches: list[Path], root: Path, mode: Mode) -> Iterator[Usage]:
    """Apply the batches and yield what each of them used, except the first. Before each, the page cache forgets what is
    on the storage."""
    if mode == "cold":
        for number, batch in enumerate(batches):
            _remove_local(root)
            _forget(root)
            with Child(entrant, root, mode) as child:
                child.ask("day", number, batch)
                child.end()
                used = child.usage()
            if number:
                yield used
        return
    with Child(entrant, root, mode) as child:
        for number, batch in enumerate(batches):
            _forget(root)
            before = child.usage()
            child.ask("day", number, batch)
            time.sleep(SETTLE_S)  # what a day leaves to be done in the background belongs to it
            after = child.usage()
            if number == 0:
                child.reset_peak()
            else:
                yield Usage(
                    after.cpu_s - before.cpu_s,
                    after.read_bytes - before.read_bytes,
                    after.written_bytes - before.written_bytes,
                    after.peak_bytes,
                )
        child.end()


def _add(outcome: Outcome, usage: Usage) -> None:
    outcome.cpu_s.append(usage.cpu_s)
    outcome.read_bytes.append(usage.read_bytes)
    outcome.written_bytes.append(usage.written_bytes)
    outcome.peak_bytes = max(outcome.peak_bytes, usage.peak_bytes)


def _exported(entrant: Entrant, root: Path, mode: Mode) -> float:
    """Have the state written as Parquet by a new process. Return the processor seconds of it, without its start."""
    (root / "export").mkdir()
    with Child(entrant, root, mode) as child:
        child.ask("ready")
        before = child.usage().cpu_s
        child.ask("export", root / "export")
        return child.usage().cpu_s - before


def _difference(batches: list[Path], exported: Path) -> str:
    """Return how the exported state differs from what polars computes from all events at once; empty if it does not."""
    files = [file for batch in batches for file in sorted(batch.iterdir())]
    right = state_of(pl.scan_parquet(files)).select(COLUMNS).collect().sort("key")
    state = pl.concat([pl.read_parquet(file) for file in exported.glob("*.parquet")])
    state = state.select(pl.col(name).cast(dtype) for name, dtype in right.schema.items()).sort("key")
    if state.equals(right):
        return ""
    same = state.join(right, on=COLUMNS).height
    return f"INVALID: {same:,} of {right.height:,} keys are right, {state.height:,} were found"


def _remove_local(root: Path) -> None:
    for name in LOCAL:
        shutil.rmtree(root / name, ignore_errors=True)


def _forget(root: Path) -> None:
    """Remove the files on the storage from the page cache, so that reading them counts."""
    for file in _stored(root):
        with _opened(file) as descriptor:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def _stored(root: Path) -> Iterator[Path]:
    for entry in root.iterdir():
        if entry.name not in (*LOCAL, "data", "export", "log.txt"):
            yield from (file for file in (entry, *entry.rglob("*")) if file.is_file())


def _stored_bytes(root: Path) -> int:
    return sum(file.stat().st_size for file in _stored(root))


@contextmanager
def _opened(file: Path) -> Iterator[int]:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
