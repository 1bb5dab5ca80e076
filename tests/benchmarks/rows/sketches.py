"""Rows P26: the batches of P1 into state with sketches, bitmaps, decimals or sessions, against that with a sum.

All pipelines take turns in one warm session. Each event has a time of its own, so the sketches of the times must have
as many entries as there were events: few per key here, as in P1, and many per key in ``P26-large``, which has one key
for each 5,000 events. The bitmaps are of the minutes of a day. The sessions never end: each key has one, and each round
makes it longer.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.definition.pipeline import Pipeline
from statelib.serializers.columns.arrow import byte_rows
from tests.benchmarks.contenders import Stateful, new_session
from tests.benchmarks.events import MINUTES, VALUE, new_deployment, new_pipeline, write_batches
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
SUM = "{agg: sum, of: amount}"
WINDOW = "\n    window: {time: at, session: 10000d, allowed_lateness: 1d, retain: 1d}"
STATES = {
    "sum": VALUE,
    **{agg: VALUE.replace(SUM, f"{{agg: {agg}, of: ts}}") for agg in AGGREGATES},
    "bitmap": VALUE.replace(SUM, "{agg: bitmap, of: minute}"),
    "sum of decimals": VALUE.replace(SUM, "{agg: sum, of: price}"),
    "sum per session": VALUE + WINDOW,
}


def run(rows: Iterable[str], root: Path, runs: int, scale: float) -> list[Ratio]:
    spark = new_session(root)
    try:
        ratios = []
        for row in rows:
            (directory := root / row).mkdir()
            events = max(int(BATCH * scale), 10_000)
            keys = max(int(events * KEYS[row]), 2)
            write_batches(directory, WARMUPS + runs, events, keys=keys, more_types=True)
            deployment = new_deployment(directory)
            sides = {
                what: Stateful(spark, deployment, _pipeline(directory, number, state))
                for number, (what, state) in enumerate(STATES.items())
            }
            figures = take_turns({what: side.contender() for what, side in sides.items()}, runs, WARMUPS)
            applied = (WARMUPS + runs) * events
            sums = _values(sides["sum"])
            for what in STATES:
                if what != "sum":
                    note = _note(_values(sides[what]), sums, what, applied)
                    name = f"{what} beside count and last, heap"
                    ratios.append(Ratio(row, name, "sum", "≤ 1.5", "cpu s", figures[what], figures["sum"], note=note))
        return ratios
    finally:
        spark.stop()


def _pipeline(directory: Path, number: int, state: str) -> Pipeline:
    types = {"of: price": "price: 'decimal(18, 2)'", "of: minute": "minute: short", "window": "at: instant"}
    columns = ", ".join(column for text, column in types.items() if text in state)
    return new_pipeline(directory, "heap", name=f"bench_{number}", state=state, columns=columns)


def _values(side: Stateful) -> pa.StructArray:
    return side.opened().to_arrow("activity")["value"].combine_chunks()


def _note(values: pa.StructArray, sums: pa.StructArray, what: str, applied: int) -> str:
    """Return the numbers of events and of keys, or that events are missing in the counts, the sketches or the sums."""
    counted = pc.sum(values.field("events")).as_py()
    right = _are_right(values, sums, what)
    if counted != applied or len(values) != len(sums) or not right:
        return (
            f"INVALID, expected {applied} events of {len(sums)} keys, found {counted} of {len(values)}, or other values"
        )
    return f"{applied:,} events, {len(values):,} keys"


def _are_right(values: pa.StructArray, sums: pa.StructArray, what: str) -> bool:
    if what == "bitmap":
        return _bitmaps_are_right(values)
    return _sketches_are_right(values, what) if what in AGGREGATES else _total(values) == _total(sums)


def _total(values: pa.StructArray) -> float:
    return float(pc.sum(values.field("amount")).as_py())


def _sketches_are_right(values: pa.StructArray, agg: str) -> bool:
    lengths = pc.binary_length(values.field("amount")).to_numpy()
    head, width = AGGREGATES[agg]
    events = values.field("events").to_numpy()
    small = events <= SMALL
    entries = (lengths - head) // width
    if head > SINGLE_HEAD:
        entries[events == 1] = (lengths[events == 1] - SINGLE_HEAD) // width
    return bool((entries[small] == events[small]).all())


def _bitmaps_are_right(values: pa.StructArray) -> bool:
    """Return whether each bitmap has at most one bit per event and per minute, and exactly one after one event."""
    bitmaps = byte_rows(values.field("amount"))
    data = bitmaps.data[: bitmaps.offsets[-1]]
    bits = np.add.reduceat(np.bitwise_count(data).astype(np.int64), bitmaps.starts)
    events = values.field("events").to_numpy()
    return bool(((bits >= 1) & (bits <= np.minimum(events, MINUTES))).all())
