"""The rows of a table as a pipeline has them after it has read some commits."""

from collections import Counter
from typing import Any

from statelib.spark.events.tables.incremental import TableRead

SIGN = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
Rows = Counter[tuple[Any, ...]]
"""How often each row (amount, shop) is there."""


def applied(before: Rows, read: TableRead | None, tasks: int) -> Rows:
    """Return the rows after a read by several tasks, which may take back only rows that are there."""
    after = Counter(before)
    for piece in read.pieces(tasks) if read else []:
        for batch in read.rows(piece) if read else []:
            for row in batch.to_pylist():
                after[row["amount"], row["shop"]] += SIGN[row["_change_type"]]
    assert all(count >= 0 for count in after.values()), "a row was taken back that is not there"
    return +after
