"""Row P19: a whole run, from begin to register with the gate, onto state with 32 times as many keys (0.5 M and 16 M at
full scale), RocksDB with incremental checkpoints and local recovery; and the same runs if the gate reads everything.

Processor seconds of this process, in which everything runs except Spark. Before each turn the copies on the host are
read, so that neither side waits for the disk."""

from collections.abc import Iterable
from pathlib import Path

from tests.benchmarks.measure import Ratio, take_turns
from tests.benchmarks.rows.growth import Grown

ROWS = ("P19",)
KEYS = 500_000
TIMES = 32
BATCH = 20_000
WARMUPS = 2
"""After the first of them, the gate has proved a base."""
WHOLE = "\nchecks: {read_back: all}\n"


def run(_: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    small = max(int(KEYS * scale), 5_000)
    batch = max(int(BATCH * scale), 100)
    sides = {
        "large": Grown(root / "large", small * TIMES, batch),
        "small": Grown(root / "small", small, batch),
        "large, whole": Grown(root / "large-whole", small * TIMES, batch, more=WHOLE),
    }
    cpu = take_turns({name: side.contender_of_whole_runs() for name, side in sides.items()}, runs, WARMUPS)
    wrong = [name for name, side in sides.items() if side.entries() != side.keys]
    note = f"INVALID, wrong number of keys: {wrong}" if wrong else f"{batch:,} events, {small:,} keys and {TIMES} times"
    return [
        Ratio("P19", "whole run with the gate onto the large state", "onto the small one", "≤ 1.5", "cpu s",
              cpu["large"], cpu["small"], note=note),
        Ratio("P19", "whole run with the gate onto the large state", "the same with `read_back: all`", "-", "cpu s",
              cpu["large"], cpu["large, whole"], note=note),
    ]  # fmt: skip
