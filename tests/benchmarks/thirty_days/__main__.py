"""``python -m tests.benchmarks.thirty_days``: thirty days of one workload by each entrant, warm and cold.

A state of about a million keys is filled on day 0, and each day after it has events on one percent of the keys. The
tables that it prints are those of docs/scoreboard.md. Linux only (/proc). Nothing is asserted."""

import argparse
import json
import os
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from tests.benchmarks.__main__ import RESULTS
from tests.benchmarks.events import write_batches
from tests.benchmarks.thirty_days.keeper import ENTRANTS, MODES, Entrant, Mode
from tests.benchmarks.thirty_days.measuring import Outcome, run
from tests.benchmarks.thirty_days.page import table

KEYS = 1_500_000
"""The number of possible keys, and of the events of day 0; about two thirds of the keys are in the state."""
TOUCHED = 1 / 150
DAYS = 30


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.thirty_days", description=__doc__)
    parser.add_argument("--only", default="", help="the entrants whose names contain one of these texts, by commas")
    parser.add_argument("--modes", default=",".join(MODES), help="default: %(default)s")
    parser.add_argument("--days", type=int, default=DAYS, help="default: %(default)s")
    parser.add_argument("--scale", type=float, default=1.0, help="part of the full amount of data, default: 1.0")
    parser.add_argument("--directory", help="where to put files (gigabytes), default: the temporary directory")
    arguments = parser.parse_args()
    texts = arguments.only.split(",")
    entrants = [entrant for entrant in ENTRANTS if any(text in entrant.name for text in texts)]
    modes = [mode for mode in MODES if mode in arguments.modes.split(",")]
    with tempfile.TemporaryDirectory(prefix="statelib-thirty-", dir=arguments.directory) as scratch:
        outcomes = measured(entrants, modes, Path(scratch), arguments.days, arguments.scale)
    _keep(outcomes, arguments.scale)
    for mode in modes:
        sys.stdout.write(f"{mode}\n\n{table([o for o in outcomes if o.mode == mode])}\n\n")
    loads = sorted(outcome.load for outcome in outcomes if outcome.load)
    if loads:
        sys.stdout.write(f"{os.cpu_count()} cores, load {loads[0]:.1f} to {loads[-1]:.1f}, scale {arguments.scale:g}\n")


def measured(entrants: list[Entrant], modes: list[Mode], scratch: Path, days: int, scale: float) -> list[Outcome]:
    """Return the outcome of each entrant in each mode, one after the other on the same batches."""
    keys = max(int(KEYS * scale), 1000)
    write_batches(scratch, 1, keys)
    write_batches(scratch, days + 1, max(int(keys * TOUCHED), 10), keys=keys, first=1)
    outcomes = []
    for number, entrant in enumerate(entrants):
        for mode in modes:
            with tempfile.TemporaryDirectory(dir=scratch) as directory:
                root = Path(directory) / f"{number}-{mode}"
                outcomes.append(run(entrant, scratch / "data" / "events", root, mode, days))
            sys.stderr.write(f"{mode} {table(outcomes[-1:]).splitlines()[-1]}\n")
    return outcomes


def _keep(outcomes: list[Outcome], scale: float) -> None:
    """Save the outcomes, with the figures of each day, beside the results of the rows."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / "thirty-days.json"
    runs = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*runs, {"scale": scale, "outcomes": [asdict(outcome) for outcome in outcomes]}]))


if __name__ == "__main__":
    main()
