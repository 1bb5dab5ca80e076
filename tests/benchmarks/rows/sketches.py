"""Rows P26: the batches of P1 into state with a sketch of the times, against the same state with a sum.

All pipelines take turns in one warm session. Each event has a time of its own, so the sketches must have as many
entries as there were events: few per key here, as in P1, and many per key in ``P26-large``, which has one key for
each 5,000 events.
"""

from collections.abc import Iterable
from pathlib import Path

import pyarrow.compute as pc

from tests.benchmarks.contenders import Stateful, new_session
from tests.benchmarks.events import VALUE, new_deployment, new_pipeline, write_batches
from tests.benchmarks.measure import Ratio, take_turns

BATCH = 2_000_000
WARMUPS = 1
KEYS = {"P26": 1.0, "P26-large": 1 / 5000}
"""Rows, with their keys per event."""
ROWS = tuple(KEYS)
AGGREGATES = {"approx_distinct": (8, 4), "theta": (16, 8), "approx_quantiles": (40, 8)}
"""Per sketch the bytes before its entries, and those of an entry."""
SMALL, SINGLE_HEAD = 7, 8
"""The entries of a sketch that lists them in its shortest form, and the bytes before a single entry."""


def run(rows: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    spark = new_session(root)
    try:
        ratios = []
        for row in rows:
            (directory := root / row).mkdir()
            events = max(int(BATCH * scale), 10_000)
            write_batches(directory, WARMUPS + runs, events, keys=max(int(events * KEYS[row]), 2))
            deployment = new_deployment(directory)
            states = {"sum": VALUE} | {
                agg: VALUE.replace("{agg: sum, of: amount}", f"{{agg: {agg}, of: ts}}") for agg in AGGREGATES
            }
            sides = {
                agg: Stateful(spark, deployment, new_pipeline(directory, "heap", name=f"bench_{agg}", state=state))
                for agg, state in states.items()
            }
            figures = take_turns({agg: side.contender() for agg, side in sides.items()}, runs, WARMUPS)
            applied = (WARMUPS + runs) * events
            for agg in AGGREGATES:
                note = _note(sides[agg], agg, applied)
                what = f"{agg} beside count and last, heap"
                ratios.append(Ratio(row, what, "sum", "≤ 1.5", "cpu s", figures[agg], figures["sum"], note=note))
        return ratios
    finally:
        spark.stop()


def _note(side: Stateful, agg: str, applied: int) -> str:
    """Return the numbers of events and of keys, or that events are missing in the sketches or in the counts."""
    values = side.opened().to_arrow("activity")["value"].combine_chunks()
    counted = pc.sum(values.field("events")).as_py()
    lengths = pc.binary_length(values.field("amount")).to_numpy()
    head, width = AGGREGATES[agg]
    events = values.field("events").to_numpy()
    small = events <= SMALL
    entries = (lengths - head) // width
    if head > SINGLE_HEAD:
        entries[events == 1] = (lengths[events == 1] - SINGLE_HEAD) // width
    if counted != applied or (entries[small] != events[small]).any():
        return f"INVALID, expected {applied} events, found {counted}, or sketches of other events"
    return f"{applied:,} events, {len(values):,} keys"
