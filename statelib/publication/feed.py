"""The columns that a feed of changes has before those of the state, and the folding of a feed.

The state of each row is that of the newest commit that names it. A row whose newest change is a deletion is gone.
"""

import pyarrow as pa

from statelib.publication.target import Commit

MOMENT = pa.timestamp("ms", "UTC")
FEED_COLUMNS = (
    pa.field("commit", pa.int64()),
    pa.field("checkpoint_id", pa.int64()),
    pa.field("interval_start", MOMENT),
    pa.field("interval_end", MOMENT),
    pa.field("change", pa.string()),
)


def feed_table(commit: Commit, changes: pa.Array, rows: pa.Table) -> pa.Table:
    """Return the rows of a feed. ``changes``: the kind of change of each row."""
    interval = commit.interval
    bounds = (None, None) if interval is None else (interval.start_ms, interval.end_ms)
    constants = [commit.number, commit.checkpoint_id, *bounds]
    columns = [
        pa.repeat(pa.scalar(value, field.type), len(rows))
        for value, field in zip(constants, FEED_COLUMNS, strict=False)
    ]
    return pa.table([*columns, changes, *rows.columns], schema=pa.schema([*FEED_COLUMNS, *rows.schema]))
