"""The fields of differing entries that people see."""

import pytest

from statelib.cli.presenters.differences import changed_fields, differences_table


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('{"n": 1, "sum": 2.5}', '{"n": 2, "sum": 2.5}', ('{"n": 1, …}', '{"n": 2, …}')),
        ('{"n": 1, "sum": 2.5}', '{"n": 2, "sum": 3.5}', ('{"n": 1, "sum": 2.5}', '{"n": 2, "sum": 3.5}')),
        ('{"é": null, "n": 1}', '{"é": ["ü"], "n": 1}', ('{"é": null, …}', '{"é": ["ü"], …}')),
        ('{"n": 1}', '{"n": 1}', ('{"n": 1}', '{"n": 1}')),
        ('{"n": 1}', '{"m": 1}', ('{"n": 1}', '{"m": 1}')),
        ("-", '{"n": 1}', ("-", '{"n": 1}')),
        ("1", "2", ("1", "2")),
        ("[[1, 2]]", "[]", ("[[1, 2]]", "[]")),
    ],
)
def test_equal_fields_of_two_rows_are_left_out(before: str, after: str, expected: tuple[str, str]) -> None:
    assert changed_fields(before, after) == expected


def test_columns_keep_their_order_and_long_bytes_are_shortened() -> None:
    long = '"' + "ab" * 100 + '"'
    table = differences_table("total", [{"change": "changed", "key_group": "3", "before": long, "after": "-"}])
    assert [column.heading for column in table.columns] == ["change", "key group", "before", "after"]
    assert table.rows == [["changed", "3", '"abababababababab… (100 bytes)"', "-"]]
