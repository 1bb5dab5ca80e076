"""``python -m bench``: measure, print a table (or JSON), assert nothing. Linux only (it reads /proc)."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from bench import canonical, rocksdb_full, spark_batches
from bench.measure import Ratio, table

Suite = Callable[[Iterable[str], Path, int, float], list[Ratio]]
SUITES: tuple[tuple[tuple[str, ...], Suite], ...] = (
    (tuple(spark_batches.NEEDED), spark_batches.run),
    (canonical.ROWS, canonical.run),
    (rocksdb_full.ROWS, rocksdb_full.run),
)
ROWS = tuple(row for rows, _ in SUITES for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rows", default=",".join(ROWS), help="comma-separated, default: %(default)s")
    parser.add_argument("--runs", type=int, default=5, help="counted turns of each contender, default: 5")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full amount of data, default: 1.0")
    parser.add_argument("--json", action="store_true", help="print JSON with every turn instead of a table")
    parser.add_argument("--directory", help="where to put files (gigabytes), default: the temporary directory")
    arguments = parser.parse_args()
    wanted = arguments.rows.split(",")
    if unknown := [row for row in wanted if row not in ROWS]:
        parser.error(f"no row {', '.join(unknown)}: there are {', '.join(ROWS)}")
    found: list[Ratio] = []
    for rows, suite in SUITES:
        if mine := [row for row in rows if row in wanted]:
            with tempfile.TemporaryDirectory(prefix="statelib-bench-", dir=arguments.directory) as directory:
                found += suite(mine, Path(directory), arguments.runs, arguments.scale)
    load = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    if arguments.json:
        result = {"machine": load, "scale": arguments.scale, "ratios": [ratio.to_json() for ratio in found]}
        sys.stdout.write(json.dumps(result, indent=2) + "\n")
    else:
        sys.stdout.write(f"{table(found)}\n\n{load}, scale {arguments.scale:g}, medians of {arguments.runs} turns\n")


if __name__ == "__main__":
    main()
