"""Rows P1, P2, P3 and P16: a batch of events into keyed state, in one Spark session.

All contenders of the rows asked for take turns on the same batches, in one warm session (start-up is not measured).
Each keeps its own state from round to round; at the end the values of all keys must be the right ones, otherwise the
rows have a note. P3 divides by the floor that is measured in the same rounds. P16 divides the peak memory of the
largest Python worker in statelib's turns by that of the JVM in streaming's; statelib's part of the JVM is in
neither."""

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from tests.benchmarks.checks import expected, verdict
from tests.benchmarks.contenders import Floor, Stateful, Streaming, new_session
from tests.benchmarks.events import batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.measure import Contender, Ratio, Unit, take_turns
from tests.benchmarks.processes import peak_bytes, reset_peaks, tree

EVENTS = 2_000_000
WARMUPS = 2
NEEDED = {
    "P1": ("heap", "streaming"),
    "P2": ("rocksdb", "streaming"),
    "P3": ("heap", "floor"),
    "P16": ("heap", "streaming"),
}
GOALS = {"P1": "≤ 1/10", "P2": "≤ 1/10", "P3": "≤ 1.25", "P16": "≤ 1/2"}
NAMES = {
    "floor": "shuffle and mapInArrow without state",
    "heap": "heap pipeline",
    "rocksdb": "RocksDB pipeline",
    "streaming": "Structured Streaming, RocksDB store",
}


def run(rows: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    """Return the ratios of the wanted rows of :data:`NEEDED`."""
    rows = [row for row in NEEDED if row in rows]
    needed = {name for row in rows for name in NEEDED[row]}
    events = max(int(EVENTS * scale), 1000)
    write_batches(root, WARMUPS + runs, events)
    spark = new_session(root)
    try:
        deployment = new_deployment(root)
        stateful: dict[str, Stateful] = {
            b: Stateful(spark, deployment, new_pipeline(root, b)) for b in ("heap", "rocksdb") if b in needed
        }
        streaming = Streaming(spark, root)
        all_contenders: dict[str, Contender] = {
            "floor": Floor(spark, deployment, new_pipeline(root, "heap")).contender(),
            **{name: pipeline.contender() for name, pipeline in stateful.items()},
            "streaming": streaming.contender(),
        }
        peaks: dict[str, list[float]] = {name: [] for name in needed}
        contenders = {n: _with_peaks(c, peaks[n], n) for n, c in all_contenders.items() if n in needed}
        figures = take_turns(contenders, runs, WARMUPS)
        totals_of = {name: pipeline.totals() for name, pipeline in stateful.items()}
        if "streaming" in needed:
            totals_of["streaming"] = streaming.totals()
    finally:
        spark.stop()
    right = expected([batch_directory(root, number) for number in range(WARMUPS + runs)])
    note = verdict(totals_of, right) or f"{events:,} events onto {right[0]:,} keys"
    return [_ratio(row, figures, peaks, runs, note) for row in rows]


def _ratio(
    row: str, figures: dict[str, tuple[float, ...]], peaks: dict[str, list[float]], runs: int, note: str
) -> Ratio:
    ours, theirs = NEEDED[row]
    unit: Unit = "cpu s"
    a, b = figures[ours], figures[theirs]
    if row == "P16":
        unit, note = "MB", f"{note}, two workers; peak of the larger, against the JVM"
        a, b = tuple(peaks[ours][-runs:]), tuple(peaks[theirs][-runs:])
    return Ratio(row, NAMES[ours], NAMES[theirs], GOALS[row], unit, a, b, note=note)


def _with_peaks(contender: Contender, peaks: list[float], name: str) -> Contender:
    """Return a contender that does the same and adds the peak memory of each turn, in MB, to ``peaks``."""
    command = "java" if name == "streaming" else "python"

    def before(number: int) -> None:
        if contender.before:
            contender.before(number)
        reset_peaks()

    def after(number: int) -> None:
        peaks.append(_peak_mb(command))
        if contender.after:
            contender.after(number)

    return Contender(partial(contender.turn), before, after)


def _peak_mb(command: str) -> float:
    """Return the peak memory of the largest process below this one whose command begins with this text."""
    processes = [p for p in tree() if p.pid != os.getpid()]
    return max((peak_bytes(p.pid) for p in processes if p.command.startswith(command)), default=0) / 1e6
