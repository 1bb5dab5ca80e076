"""Count and sum as a user function: once for the batch of a subtask, once key by key."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

REFERENCE = "tests.benchmarks.functions:update"
FIELDS = {"events": "long", "amount": "double"}
SCHEMA = "events long, amount double"


def update(events: pa.Table, state: pa.Table) -> pa.Table:
    """Compute count and sum of each key, on whole columns."""
    owner = pc.index_in(events["key"].combine_chunks(), value_set=state["key"].combine_chunks()).to_numpy()
    counts = np.bincount(owner, minlength=len(state))
    sums = np.bincount(owner, events["amount"].to_numpy(), minlength=len(state))
    return pa.table(
        {
            "key": state["key"],
            "events": pc.add(pc.fill_null(state["events"], 0), pa.array(counts)),
            "amount": pc.add(pc.fill_null(state["amount"], 0.0), pa.array(sums)),
        }
    )


def processor() -> Any:
    """Return the processor with the same aggregates for ``transformWithStateInPandas``."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

    class Summing(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._held = handle.getValueState("activity", SCHEMA)

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
            events, amount = self._held.get() or (0, 0.0)
            for batch in rows:
                events, amount = events + len(batch), amount + float(batch["amount"].sum())
            self._held.update((events, amount))
            yield pd.DataFrame({"key": [key[0]], "events": [events], "amount": [amount]})

        def close(self) -> None:
            pass

    return Summing()
