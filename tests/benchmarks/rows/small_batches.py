"""Rows P4 and P5: batches that touch 1 % of the keys, after one that touches all.

Every contender keeps its own state; processor seconds, and bytes that a turn leaves on the disk. polars and delta-rs
run in this process, without Spark. ``changed``: the bytes of the changed rows, keys and values as they are serialized.
"""

from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from tests.benchmarks.checks import Totals, expected, verdict
from tests.benchmarks.contenders import Stateful, Streaming, new_session
from tests.benchmarks.events import batch_directory, new_deployment, new_pipeline, write_batches
from tests.benchmarks.measure import Contender, Ratio, take_turns
from tests.benchmarks.rewriting import DeltaMerge, PolarsRewrite, SparkRewrite
from tests.benchmarks.written import Written

KEYS = 2_000_000
TOUCHED = 0.01
WARMUPS = 3
ROWS = ("P4", "P5")
WARM = "RocksDB incremental, local_recovery"
OURS = ("heap changelog", "RocksDB incremental", WARM, "RocksDB changelog")
ROW_BYTES = 10 + 1 + 8 + 8 + 1 + 1 + 17 + 8
"""The bytes of a row: composite key; mask, count, sum; mask, length and text, time."""


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    keys = max(int(KEYS * scale), 1000)
    write_batches(root, 1, keys)
    write_batches(root, WARMUPS + runs, max(int(keys * TOUCHED), 10), keys=keys, touched=TOUCHED, first=1)
    spark = new_session(root)
    try:
        sides = _sides(spark, root)
        written: dict[str, list[float]] = {name: [] for name in sides}
        contenders = {n: _with_bytes(side.contender(), written[n], where) for n, (side, where) in sides.items()}
        cpu = take_turns(contenders, runs, WARMUPS)
        totals_of: dict[str, Totals] = {name: side.totals() for name, (side, _) in sides.items()}
    finally:
        spark.stop()
    right = expected([batch_directory(root, number) for number in range(WARMUPS + runs)])
    note = verdict(totals_of, right) or f"{int(keys * TOUCHED):,} events onto {right[0]:,} keys"
    counted = {name: tuple(values[-runs:]) for name, values in written.items()}
    return _ratios(cpu, counted, max(int(keys * TOUCHED), 10), note)


def _sides(spark: Any, root: Path) -> dict[str, tuple[Any, Path]]:
    deployment = new_deployment(root)

    def ours(backend: str, strategy: str, name: str = "", settings: str = "") -> tuple[Stateful, Path]:
        pipeline = new_pipeline(root, backend, strategy, name=name, settings=settings)
        return Stateful(spark, deployment, pipeline), root / "state" / pipeline.name

    sides: dict[str, tuple[Any, Path]] = {
        "heap changelog": ours("heap", "changelog"),
        "RocksDB incremental": ours("rocksdb", "incremental"),
        WARM: ours("rocksdb", "incremental", "bench_warm", "local_recovery: true"),
        "RocksDB changelog": ours("rocksdb", "changelog"),
    }
    for changelog, name in ((False, "Structured Streaming"), (True, "Structured Streaming with changelog")):
        streaming = Streaming(spark, root, changelog=changelog)
        sides[name] = streaming, streaming.checkpoint
    for name, rewrite in (
        ("polars rewrite", PolarsRewrite(root)),
        ("Spark rewrite", SparkRewrite(spark, root)),
        ("delta-rs MERGE", DeltaMerge(root)),
    ):
        sides[name] = rewrite, rewrite.directory
    return sides


def _with_bytes(contender: Contender, sizes: list[float], where: Path) -> Contender:
    seen = Written([where])

    def before(number: int) -> None:
        if contender.before:
            contender.before(number)
        seen.taken()

    def after(number: int) -> None:
        sizes.append(seen.taken() / 1e6)
        if contender.after:
            contender.after(number)

    return Contender(contender.turn, before, after)


def _ratios(
    cpu: dict[str, tuple[float, ...]], written: dict[str, tuple[float, ...]], events: int, note: str
) -> list[Ratio]:
    changed = tuple(events * ROW_BYTES / 1e6 for _ in written["heap changelog"])
    ratios = [
        Ratio(
            "P4",
            name,
            theirs,
            "≤ 1/2" if theirs == "Structured Streaming" else "none",
            "cpu s",
            cpu[name],
            cpu[theirs],
            note=note,
        )
        for name in OURS
        for theirs in cpu
        if theirs not in OURS
    ]
    ratios += [Ratio("P4", name, "the changed rows", "≤ 1.2", "MB", written[name], changed, note=note) for name in OURS]
    best = min(OURS, key=lambda name: median(written[name]))
    return ratios + [
        Ratio(
            "P5",
            best,
            theirs,
            "≤ 1/30" if theirs.startswith("delta") else "none",
            "MB",
            written[best],
            sizes,
            note=note,
        )
        for theirs, sizes in written.items()
        if theirs not in OURS
    ]
