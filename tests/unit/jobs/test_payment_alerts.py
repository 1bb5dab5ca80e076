"""The function of the cookbook's alerts."""

from decimal import Decimal

import pyarrow as pa
from statelib_jobs.functions.payment_alerts import update


def test_payments_without_an_amount_leave_the_total_as_it_is() -> None:
    amount = pa.decimal128(18, 2)
    events = pa.table({"customer": ["ada", "bob"], "amount": pa.array([None, Decimal("500.00")], amount)})
    state = pa.table({"customer": ["ada", "bob"], "spent": pa.array([Decimal("900.00"), None], amount)})
    totals, outputs = update(events, state)
    spent = dict(zip(*totals.to_pydict().values(), strict=True))
    assert spent == {"ada": Decimal("900.00"), "bob": Decimal("500.00")}
    assert outputs["alerts"].to_pydict()["reason"] == ["a large payment"]
