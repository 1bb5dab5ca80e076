"""The types of a source that can be read as another one without loss."""

import pytest

from statelib.spark.events.source_types import is_read_as


@pytest.mark.parametrize(
    ("actual", "wanted", "fits"),
    [
        ("int", "bigint", True),
        ("bigint", "int", False),
        ("decimal(10,2)", "decimal(12,4)", True),
        ("decimal(10,2)", "decimal(11,4)", False),
        ("decimal(10,2)", "decimal(12,1)", False),
        ("int", "decimal(12,2)", True),
        ("int", "decimal(11,2)", False),
        ("bigint", "decimal(19,0)", True),
        ("double", "decimal(38,10)", False),
        ("decimal(10,2)", "double", False),
    ],
)
def test_a_type_is_read_as_one_that_holds_all_its_values(actual: str, wanted: str, fits: bool) -> None:
    assert is_read_as(actual, wanted) is fits
