"""An example of a user function that emits rows: alerts about payments, beside the total of each customer."""

from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc

BUDGET = pa.scalar(Decimal("1000.00"), pa.decimal128(18, 2))
"""A customer who has spent more than this in total gets one alert."""
NOTHING = pa.scalar(Decimal("0.00"), BUDGET.type)
LARGE = pa.scalar(Decimal("400.00"), pa.decimal128(18, 2))
"""A single payment of more than this is an alert."""


def update(events: pa.Table, state: pa.Table) -> tuple[pa.Table, dict[str, pa.Table]]:
    """Add the payments of one interval to the totals. Return the totals, and the alerts as output ``alerts``.

    ``events``: customer, amount. ``state``: customer, spent. ``alerts``: customer, amount, reason."""
    sums = state.join(events.group_by("customer").aggregate([("amount", "sum")]), "customer")
    before = pc.coalesce(sums["spent"], NOTHING)
    paid = pc.coalesce(sums["amount_sum"].cast(BUDGET.type), NOTHING)  # null if no payment has an amount
    after = pc.add(before, paid).cast(BUDGET.type)
    totals = pa.table({"customer": sums["customer"], "spent": after})
    passed = totals.filter(pc.and_(pc.less_equal(before, BUDGET), pc.greater(after, BUDGET)))
    large = events.filter(pc.greater(events["amount"], LARGE))
    alerts = [
        _alerts(passed["customer"], passed["spent"], "the budget is spent"),
        _alerts(large["customer"], large["amount"], "a large payment"),
    ]
    return totals, {"alerts": pa.concat_tables(alerts)}


def _alerts(customers: pa.ChunkedArray, amounts: pa.ChunkedArray, reason: str) -> pa.Table:
    reasons = pa.repeat(pa.scalar(reason), len(customers))
    return pa.table({"customer": customers, "amount": amounts, "reason": reasons})
