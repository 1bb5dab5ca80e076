"""Every type has a text that a person can read, and none is rounded."""

from datetime import date
from decimal import Decimal

import pyarrow as pa
import pytest

from statelib.formats.text.plain_text import texts


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array([7]), "7"),
        (pa.array(['th\u00e9 "x"']), '"th\u00e9 \\"x\\""'),
        (pa.array([0.1]), "0.1"),
        (pa.array([b"\x00\xff"]), '"00ff"'),
        (pa.array([date(2013, 1, 1)]), '"2013-01-01"'),
        (pa.array([1], pa.timestamp("ns", "UTC")), '"1970-01-01 00:00:00.000000001Z"'),
        (pa.array([1], pa.time64("ns")), '"00:00:00.000000001"'),
        (
            pa.array([{"n": 1, "at": None}], pa.struct([("n", pa.int64()), ("at", pa.timestamp("ns"))])),
            '{"n": 1, "at": null}',
        ),
        (pa.array([[1, None]], pa.list_(pa.timestamp("ns"))), '["1970-01-01 00:00:00.000000001", null]'),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), '[["a", 1]]'),
    ],
)
def test_each_value_has_this_exact_text(column: pa.Array, text: str) -> None:
    assert texts(column) == [text]
    assert texts(pa.concat_arrays([column, pa.nulls(1, column.type)])) == [text, "-"]


def test_decimals_have_all_their_digits() -> None:
    amounts = pa.array([Decimal("0E-10"), Decimal("-12.5"), None], pa.decimal128(38, 10))
    assert texts(amounts) == ["0.0000000000", "-12.5000000000", "-"]
    rows = pa.array([{"a": Decimal("0E-10")}], pa.struct([("a", pa.decimal128(38, 10))]))
    assert texts(rows) == ['{"a": "0.0000000000"}']
