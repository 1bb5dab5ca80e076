"""Rows P19 and P20: a whole run, from begin to register with the gate, RocksDB with incremental checkpoints and local
recovery, onto state with 16 M keys at full scale.

P19 divides by the same onto 0.5 M keys, and by the same if the gate reads everything. P20 divides by a MERGE of the
same batch into a table with the same rows by delta-rs: processor seconds, and the bytes that are left on the disk.

Processor seconds of this process, in which everything runs except Spark. Before each turn the copies on the host are
read, so that neither side waits for the disk."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from tests.benchmarks.checks import state_of
from tests.benchmarks.measure import Contender, Ratio, take_turns
from tests.benchmarks.merging import merge_by_delta
from tests.benchmarks.rows.growth import LOADED, Grown, events_of
from tests.benchmarks.state_columns import COLUMNS
from tests.benchmarks.written import Written

ROWS = ("P19", "P20")
KEYS = 500_000
TIMES = 32
BATCH = 20_000
WARMUPS = 2
"""After the first of them, the gate has proved a base."""
WHOLE = "\nchecks: {read_back: all}\n"
DELTA = "delta-rs MERGE of the same batch into the same rows"


def run(rows: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    small = max(int(KEYS * scale), 5_000)
    batch = max(int(BATCH * scale), 100)
    wanted = set(rows)
    sides = {"large": Grown(root / "large", small * TIMES, batch)}
    if "P19" in wanted:
        sides["small"] = Grown(root / "small", small, batch)
        sides["large, whole"] = Grown(root / "large-whole", small * TIMES, batch, more=WHOLE)
    contenders = {name: side.contender_of_whole_runs() for name, side in sides.items()}
    written: dict[str, list[float]] = {"large": [], "delta": []}
    contenders["large"] = _with_bytes(contenders["large"], written["large"], root / "large" / "state")
    table = None
    if "P20" in wanted:
        table = MergedTable(root / "delta", small * TIMES, batch)
        contenders["delta"] = _with_bytes(table.contender(), written["delta"], table.directory)
    cpu = take_turns(contenders, runs, WARMUPS)
    wrong = [name for name, side in sides.items() if side.entries() != side.keys]
    if table is not None and table.totals() != (small * TIMES, small * TIMES + (WARMUPS + runs) * batch):
        wrong.append("delta")
    note = f"INVALID, wrong number of keys: {wrong}" if wrong else f"{batch:,} events, {small:,} keys and {TIMES} times"
    ratios = []
    what = "whole run with the gate onto the large state"
    if "P19" in wanted:
        ratios += [
            Ratio("P19", what, "onto the small one", "≤ 1.5", "cpu s", cpu["large"], cpu["small"], note=note),
            Ratio("P19", what, "the same with `read_back: all`", "-", "cpu s", cpu["large"], cpu["large, whole"],
                  note=note),
        ]  # fmt: skip
    if "P20" in wanted:
        sizes = {name: tuple(values[-runs:]) for name, values in written.items()}
        ratios += [
            Ratio("P20", what, DELTA, "≤ 1/3", "cpu s", cpu["large"], cpu["delta"], note=note),
            Ratio("P20", what, DELTA, "≤ 1/20", "MB", sizes["large"], sizes["delta"], note=note),
        ]
    return ratios


class MergedTable:
    """A table in Delta with ``keys`` rows, into which batches are merged that have the events of :class:`Grown`."""

    def __init__(self, directory: Path, keys: int, batch: int) -> None:
        directory.mkdir()
        self.directory, self._keys, self._batch, self._number = directory, keys, batch, 0
        for start in range(0, keys, LOADED):
            merge_by_delta(directory, self._aggregated(np.arange(start, min(start + LOADED, keys))), append=True)

    def contender(self) -> Contender:
        random = np.random.default_rng(1)
        batches: list[pa.Table] = []

        def before(_: int) -> None:
            batches.append(events_of(self._number, random.integers(0, self._keys, self._batch)))

        def turn(_: int) -> None:
            self._number += 1
            merge_by_delta(self.directory, state_of(pl.DataFrame(batches.pop()).lazy()))

        return Contender(turn, before)

    def totals(self) -> tuple[int, int]:
        """Return the numbers of rows and of events."""
        files = [path.removeprefix("file://") for path in DeltaTable(str(self.directory)).file_uris()]
        counted = pl.scan_parquet(files).select(pl.len().alias("rows"), pl.col("events").sum()).collect()
        return counted.row(0)

    def _aggregated(self, keys: np.ndarray) -> pl.LazyFrame:
        self._number += 1
        return state_of(pl.DataFrame(events_of(self._number - 1, keys)).lazy()).select(COLUMNS)


def _with_bytes(contender: Contender, sizes: list[float], where: Path) -> Contender:
    seen = Written([where])

    def before(number: int) -> None:
        if contender.before:
            contender.before(number)
        seen.taken()

    def after(_: int) -> None:
        sizes.append(seen.taken() / 1e6)

    return Contender(contender.turn, before, after)
