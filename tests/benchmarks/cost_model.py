"""A model of the cost of a checkpoint of large state: bytes moved, requests, processor seconds, seconds.

Linear, with the constants that small runs gave; ``python -m tests.benchmarks.cost_model`` prints the table of
PERFORMANCE.md. It describes RocksDB with incremental checkpoints: what is read, unless a host still has it, what is
written, the gate, a published feed, and the merging of tables as the mean over the runs from one merge to the next.
"""

import math
import sys
from dataclasses import dataclass, replace

from statelib.backends.rocksdb.compaction import FEW, LARGE_BYTES, MANY, TWO
from statelib.backends.rocksdb.reading.entries import SCANNED_PER_KEY
from statelib.definition.parts.quality import Checks, Rotation

GB = 1e9
USUAL = Rotation()


@dataclass(frozen=True)
class Machine:
    """The speed of one task on one core. Nanoseconds per row are processor time; rates are the share of one task."""

    lookup_ns: float = 1_500
    scan_ns: float = 400
    write_ns: float = 900
    apply_ns: float = 700
    merge_ns: float = 400
    """The time per entry of tables that are merged."""
    decode_ns: float = 600
    """The time per entry that the gate decodes and hashes."""
    publish_ns: float = 1_000
    """The time per changed entry that is compared with the base and written to a feed."""
    copy_gb_s: float = 0.5
    checksum_gb_s: float = 1.5
    """The rate at which the gate reads bytes and computes their checksums."""
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
    ``merged_bytes``: about how large the files are that file merging makes, 0 without it. ``rotation``: what the gate
    reads of known files; ``is_published``: whether the changes are published as a feed."""

    state_bytes: float
    partitions: int
    events: float
    row_bytes: float = 200
    file_bytes: float = 64e6
    cores: int = 1_000
    warm: float = 0.0
    merged_bytes: float = 0
    rotation: Rotation = USUAL
    is_published: bool = False


@dataclass(frozen=True)
class Cost:
    """The cost of a whole run. ``seconds`` is the time of one task times the number of waves of tasks, and that of a
    gate that is not divided among tasks.

    ``cpu_s`` is the sum of its parts: ``snapshot_s``, ``merging_s``, ``gate_s`` and ``publish_s``. ``gate_bytes``: the
    part of ``read_bytes`` that the gate reads. ``merged_every``: the number of runs from one merge of the tables to the
    next."""

    read_bytes: float
    gate_bytes: float
    written_bytes: float
    gets: float
    puts: float
    snapshot_s: float
    merging_s: float
    gate_s: float
    publish_s: float
    seconds: float
    files: float
    merged_every: int

    @property
    def cpu_s(self) -> float:
        """The processor seconds of all parts."""
        return self.snapshot_s + self.merging_s + self.gate_s + self.publish_s


FEED = 0.32
"""The bytes of recorded changes and feed per byte of changed rows."""
_LISTED = 1_000
"""The files that one request lists."""


def cost(run: Run, machine: Machine | None = None) -> Cost:
    """Return the mean cost of a run. Raises ValueError if a division by zero would result."""
    machine = machine or Machine()
    if run.partitions < 1 or run.cores < 1:
        raise ValueError(f"expected at least one partition and one core, found {run.partitions} and {run.cores}")
    n, waves = run.partitions, math.ceil(run.partitions / run.cores)
    state, events = run.state_bytes / n, run.events / n
    rows, flushed = state / run.row_bytes, events * run.row_bytes
    every = runs_per_merge(flushed, state)
    published = FEED * flushed if run.is_published else 0.0
    read, changed = state * (1 - run.warm), flushed + state / every + published
    looked_up = events * machine.lookup_ns if rows > SCANNED_PER_KEY * events else rows * machine.scan_ns
    rows_s = (looked_up + events * (machine.write_ns + machine.apply_ns)) / 1e9
    snapshot_s = rows_s + (read + changed) / machine.copy_gb_s / GB + state / machine.open_gb_s / GB
    merging_s = rows / every * machine.merge_ns / 1e9
    publish_s = events * machine.publish_ns / 1e9 if run.is_published else 0.0
    gate_bytes, decoded = _gate(run, flushed + state / every, events + rows / every)
    gate_s = gate_bytes / machine.checksum_gb_s / GB + decoded * machine.decode_ns / 1e9
    files = math.ceil(state / run.file_bytes)
    written = math.ceil(changed / run.file_bytes) + 1
    objects = written if not run.merged_bytes else max(math.ceil(changed / run.merged_bytes), 1)
    gate_gets = gate_bytes / machine.part_bytes + files / _LISTED
    gets = math.ceil(files * (1 - run.warm)) + math.ceil(read / machine.part_bytes)
    puts = objects + math.ceil(changed / machine.part_bytes)
    waiting = (read + changed) / machine.network_gb_s / GB + (gets + puts) * machine.request_s / machine.streams
    gate_time = gate_s + gate_bytes / machine.network_gb_s / GB + gate_gets * machine.request_s / machine.streams
    by_tasks = gate_bytes * n >= Checks().in_job_from_bytes
    seconds = (snapshot_s + merging_s + publish_s + waiting) * waves + gate_time * (waves if by_tasks else n)
    return Cost(
        (read + gate_bytes) * n, gate_bytes * n, changed * n, (gets + gate_gets) * n, puts * n,
        snapshot_s * n, merging_s * n, gate_s * n, publish_s * n, seconds, files * n, every,
    )  # fmt: skip


def runs_per_merge(flushed: float, state: float) -> int:
    """Return the number of runs from one merge of a subtask's tables to the next. ``flushed``: the bytes of the table
    that each run adds."""
    return next((number for number in range(TWO, MANY) if _is_due(number, flushed, state)), MANY)


def _is_due(number: int, flushed: float, state: float) -> bool:
    return number * flushed >= max(state, LARGE_BYTES) or (number >= FEW and 2 * number * flushed >= state)


def _gate(run: Run, new_bytes: float, new_entries: float) -> tuple[float, float]:
    """Return (bytes, entries) that the gate reads per partition."""
    entries = run.state_bytes / run.row_bytes
    turn = min(entries / run.rotation.rotate, max(run.rotation.entries, run.events))
    return (
        new_bytes + run.state_bytes / run.partitions / run.rotation.rotate,
        new_entries + turn / run.partitions,
    )


LARGE = Run(state_bytes=10e12, partitions=1_000, events=500e6)
"""A state of 10 TB on 1,000 partitions, of whose rows 1 % change."""
RARELY = Rotation(rotate=500)
CASES = {
    "cold: every task fetches its state": LARGE,
    "warm: nine hosts of ten have it (`local_recovery`)": replace(LARGE, warm=0.9),
    "warm, all": replace(LARGE, warm=1.0),
    "warm, all; the gate reads 1/500 of the known files": replace(LARGE, warm=1.0, rotation=RARELY),
    "the same, with a published feed": replace(LARGE, warm=1.0, rotation=RARELY, is_published=True),
    "the same, 50 M events": replace(LARGE, warm=1.0, rotation=RARELY, is_published=True, events=50e6),
    "warm, all; files merged to 256 MB": replace(LARGE, warm=1.0, merged_bytes=256e6),
    "cold, 4,000 partitions": replace(LARGE, partitions=4_000, cores=4_000),
    "cold, 1,000 partitions on 100 cores": replace(LARGE, cores=100),
}


def table() -> str:
    titles = ["10 TB, 500 M events", "read TB", "of it by the gate", "written TB", "GET", "PUT", "CPU h"]
    titles += ["snapshot", "merging", "gate", "publish", "minutes"]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for name, run in CASES.items():
        c = cost(run)
        tb = " | ".join(f"{size / 1e12:.2f}" for size in (c.read_bytes, c.gate_bytes, c.written_bytes))
        requests = f"{c.gets:,.0f} | {c.puts:,.0f}"
        parts = (c.cpu_s, c.snapshot_s, c.merging_s, c.gate_s, c.publish_s)
        hours = " | ".join(f"{seconds / 3600:.1f}" for seconds in parts)
        lines.append(f"| {name} | {tb} | {requests} | {hours} | {c.seconds / 60:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.stdout.write(table() + "\n")
