"""``python -m tests.benchmarks``: measure, print a table (or JSON), keep it, assert nothing. Linux only (/proc)."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.benchmarks.measure import Ratio, table
from tests.benchmarks.plots import bars_of, plot
from tests.benchmarks.rows import (
    buckets,
    canonical,
    cold,
    connect,
    flink_restore,
    flink_savepoints,
    gated,
    grouped,
    growth,
    incremental,
    limits,
    mending,
    native_savepoint,
    orchestration,
    published,
    rocksdb_full,
    safety,
    sketches,
    small_batches,
    spark_batches,
    state_scan,
    touched,
    user_functions,
    warm_restore,
    workloads,
)

Suite = Callable[[Iterable[str], Path, int, float], list[Ratio]]
SUITES: tuple[tuple[tuple[str, ...], Suite], ...] = (
    (tuple(spark_batches.NEEDED), spark_batches.run),
    (small_batches.ROWS, small_batches.run),
    (user_functions.ROWS, user_functions.run),
    (flink_savepoints.ROWS, flink_savepoints.run),
    (rocksdb_full.ROWS, rocksdb_full.run),
    (incremental.ROWS, incremental.run),
    (warm_restore.ROWS, warm_restore.run),
    (native_savepoint.ROWS, native_savepoint.run),
    (state_scan.ROWS, state_scan.run),
    (growth.ROWS, growth.run),
    (gated.ROWS, gated.run),
    (cold.ROWS, cold.run),
    (touched.ROWS, touched.run),
    (mending.ROWS, mending.run),
    (grouped.ROWS, grouped.run),
    (connect.ROWS, connect.run),
    (orchestration.ROWS, orchestration.run),
    (published.ROWS, published.run),
    (workloads.ROWS, workloads.run),
    (buckets.ROWS, buckets.run),
    (sketches.ROWS, sketches.run),
    (flink_restore.ROWS, flink_restore.run),
    (canonical.ROWS, canonical.run),
    (safety.ROWS, safety.run),
    (limits.ROWS, limits.run),
)
ROWS = tuple(row for rows, _ in SUITES for row in rows)
SHORT = ("P1", "P2", "P3", "P11", "P12", "P13", "P15", "P16", "W-feed", "flink-scan", "limits")
"""The suites that ``make bench`` runs; each of the others takes minutes by itself."""
RESULTS = Path(__file__).resolve().parents[2] / ".work" / "benchmarks"
"""The directory of the results: one file per commit, not committed."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--rows", default=",".join(SHORT), help="comma-separated, or all; default: %(default)s")
    parser.add_argument("--runs", type=int, default=3, help="counted turns of each contender, default: 3")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full amount of data, default: 1.0")
    parser.add_argument("--json", action="store_true", help="print JSON with every turn instead of a table")
    parser.add_argument("--directory", help="where to put files (gigabytes), default: the temporary directory")
    parser.add_argument("--plot", type=Path, help="draw the ratios into this SVG file")
    arguments = parser.parse_args()
    wanted = list(ROWS) if arguments.rows == "all" else arguments.rows.split(",")
    if unknown := [row for row in wanted if row not in ROWS]:
        parser.error(f"no row {', '.join(unknown)}: there are {', '.join(ROWS)}")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are stored compiled, as by an installation
    ratios = measured(wanted, arguments.directory, arguments.runs, arguments.scale)
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    result = {"machine": load, "scale": arguments.scale, "ratios": [ratio.to_json() for ratio in ratios]}
    keep(result)
    if arguments.plot:
        arguments.plot.write_text(plot(bars_of(ratios), f"{load}, scale {arguments.scale:g}"))
    if arguments.json:
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        sys.stdout.write(f"{table(ratios)}\n\n{load}, scale {arguments.scale:g}, medians of {arguments.runs} turns\n")


def measured(wanted: list[str], directory: str | None, runs: int, scale: float) -> list[Ratio]:
    """Measure each suite in a directory of its own. A suite that fails has the error in its rows; the others
    continue."""
    ratios: list[Ratio] = []
    for rows, suite in SUITES:
        if mine := [row for row in rows if row in wanted]:
            with tempfile.TemporaryDirectory(prefix="statelib-bench-", dir=directory) as scratch:
                try:
                    these = suite(mine, Path(scratch), runs, scale)
                except Exception as error:
                    text = f"FAILED: {type(error).__name__}: {str(error)[:300]}".replace("\n", " ")
                    these = [Ratio(row, "not measured", "-", "-", "wall s", (), (), note=text) for row in mine]
            ratios += these
            sys.stderr.writelines(f"{line}\n" for line in table(these).splitlines()[2:])
    return ratios


def keep(result: dict[str, object]) -> None:
    """Save the results in a file named by the commit. Runs of other rows and scales at the same commit are kept
    beside each other."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=RESULTS.parents[1]
    ).stdout.strip()
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{commit or 'unknown'}.json"
    runs = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*runs, result], indent=1))


if __name__ == "__main__":
    main()
