"""A model of the cost of a checkpoint of large state: bytes moved, requests, processor seconds, seconds.

Linear, with the constants that small runs gave; ``python -m tests.benchmarks.cost_model`` prints the table of
PERFORMANCE.md. Of RocksDB with incremental checkpoints: what is read, unless a host still has it, and what is written.
Compaction is taken from levelled RocksDB's own arithmetic: an update is written again at each level.
"""

import math
import sys
from dataclasses import dataclass, replace

from statelib.backends.rocksdb.reading import SCANNED_PER_KEY

GB = 1e9


@dataclass(frozen=True)
class Machine:
    """The speed of one task on one core. Nanoseconds per row are processor time; rates are the share of one task."""

    lookup_ns: float = 1_500
    scan_ns: float = 400
    write_ns: float = 900
    apply_ns: float = 700
    copy_gb_s: float = 0.5
    open_gb_s: float = 10
    """The rate at which tables of state are opened: their filters and indexes are read."""
    network_gb_s: float = 0.1
    request_s: float = 0.03
    part_bytes: int = 8_000_000
    streams: int = 4
    """The number of concurrent uploads of one task."""


@dataclass(frozen=True)
class Run:
    """One interval on all partitions. ``warm``: part of the tasks whose host has a copy of their state;
    ``merged_bytes``: about how large the files are that file merging makes, 0 without it."""

    state_bytes: float
    partitions: int
    events: float
    row_bytes: float = 200
    file_bytes: float = 64e6
    levels: int = 4
    cores: int = 1_000
    warm: float = 0.0
    merged_bytes: float = 0


@dataclass(frozen=True)
class Cost:
    """The cost of a whole run. ``seconds`` is the time of one task times the number of waves of tasks."""

    read_bytes: float
    written_bytes: float
    gets: float
    puts: float
    cpu_s: float
    seconds: float
    files: float


def cost(run: Run, machine: Machine | None = None) -> Cost:
    """Return the cost of a run. Raises ValueError if a division by zero would result."""
    machine = machine or Machine()
    if run.partitions < 1 or run.cores < 1:
        raise ValueError(f"expected at least one partition and one core, found {run.partitions} and {run.cores}")
    state, events = run.state_bytes / run.partitions, run.events / run.partitions
    rows = state / run.row_bytes
    looked_up = events * machine.lookup_ns if rows > SCANNED_PER_KEY * events else rows * machine.scan_ns
    changed = min(events * run.row_bytes * run.levels, state + events * run.row_bytes)
    read = state * (1 - run.warm)
    rows_s = (looked_up + events * (machine.write_ns + machine.apply_ns)) / 1e9
    cpu = rows_s + (read + changed) / machine.copy_gb_s / GB + state / machine.open_gb_s / GB
    files = math.ceil(state / run.file_bytes)
    written = math.ceil(changed / run.file_bytes) + 1
    objects = written if not run.merged_bytes else max(math.ceil(changed / run.merged_bytes), 1)
    gets = math.ceil(files * (1 - run.warm)) + math.ceil(read / machine.part_bytes)
    puts = objects + math.ceil(changed / machine.part_bytes)
    waiting = (read + changed) / machine.network_gb_s / GB + (gets + puts) * machine.request_s / machine.streams
    waves = math.ceil(run.partitions / run.cores)
    n = run.partitions
    return Cost(read * n, changed * n, gets * n, puts * n, cpu * n, (cpu + waiting) * waves, files * n)


LARGE = Run(state_bytes=10e12, partitions=1_000, events=500e6)
"""A state of 10 TB on 1,000 partitions, of whose rows 1 % change."""
CASES = {
    "cold: every task fetches its state": LARGE,
    "warm: nine hosts of ten have it (`local_recovery`)": replace(LARGE, warm=0.9),
    "warm, all": replace(LARGE, warm=1.0),
    "warm, all; files merged to 256 MB": replace(LARGE, warm=1.0, merged_bytes=256e6),
    "cold, 4,000 partitions": replace(LARGE, partitions=4_000, cores=4_000),
    "cold, 1,000 partitions on 100 cores": replace(LARGE, cores=100),
}


def table() -> str:
    lines = [
        "| 10 TB, 500 M events | read TB | written TB | GET | PUT | CPU h | minutes | files |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, run in CASES.items():
        c = cost(run)
        tb = f"{c.read_bytes / 1e12:.2f} | {c.written_bytes / 1e12:.2f}"
        requests = f"{c.gets:,.0f} | {c.puts:,.0f}"
        lines.append(f"| {name} | {tb} | {requests} | {c.cpu_s / 3600:.1f} | {c.seconds / 60:.1f} | {c.files:,.0f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
