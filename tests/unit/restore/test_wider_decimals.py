"""Stored decimals whose type in the pipeline file has changed: kept as they are, converted or refused."""

from decimal import Decimal

import pyarrow as pa
import pytest

from statelib.errors import InvalidRequestError
from statelib.model.state import StateDescriptor, StateKind
from statelib.restore.schemas.compatibility import Compatibility, compare_states
from statelib.restore.schemas.matching import keeps_bytes
from statelib.restore.schemas.migration import migration
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import decode_values, encode_values
from statelib.serializers.registry import codec_of
from statelib.serializers.type_text import parse_type


def state(text: str) -> StateDescriptor:
    return StateDescriptor("s", StateKind.VALUE, parse_type(text))


def migrated(stored: str, wanted: str, values: list[object]) -> list[object]:
    column = pa.array(values, codec_of(parse_type(stored)).arrow_type)
    rows = encode_values(state(stored), column)
    return decode_values(
        state(wanted), migration(state(stored), state(wanted))(StateRows(rows, rows)).values
    ).to_pylist()


@pytest.mark.parametrize(
    ("stored", "wanted", "effect"),
    [
        ("decimal(10, 2)", "decimal(12, 2)", Compatibility.AS_IS),
        ("row<a: decimal(10, 2)>", "row<a: decimal(12, 2)>", Compatibility.AS_IS),
        ("decimal(10, 2)", "decimal(12, 4)", Compatibility.AFTER_MIGRATION),
        ("bigdecimal", "decimal(12, 4)", Compatibility.AFTER_MIGRATION),
        ("decimal(10, 2)", "decimal(9, 2)", Compatibility.INCOMPATIBLE),
        ("decimal(10, 2)", "decimal(12, 1)", Compatibility.INCOMPATIBLE),
        ("decimal(10, 2)", "decimal(11, 4)", Compatibility.INCOMPATIBLE),
        ("decimal(10, 2)", "sql<DECIMAL(10, 2)>", Compatibility.INCOMPATIBLE),
        ("double", "decimal(10, 2)", Compatibility.INCOMPATIBLE),
        ("decimal(10, 2)", "double", Compatibility.INCOMPATIBLE),
        ("long", "decimal(38, 0)", Compatibility.AFTER_MIGRATION),
        ("long", "decimal(19, 0)", Compatibility.AFTER_MIGRATION),
        ("long", "decimal(20, 2)", Compatibility.INCOMPATIBLE),
        ("int", "decimal(12, 2)", Compatibility.AFTER_MIGRATION),
        ("int", "decimal(9, 0)", Compatibility.INCOMPATIBLE),
        ("map<long, int>", "map<decimal(19, 0), int>", Compatibility.INCOMPATIBLE),
        ("map<decimal(9, 1), decimal(9, 1)>", "map<decimal(9, 1), decimal(9, 1)>", None),
        ("map<decimal(9, 1), long>", "map<decimal(9, 2), long>", Compatibility.INCOMPATIBLE),
    ],
)
def test_a_decimal_may_become_wider(stored: str, wanted: str, effect: Compatibility | None) -> None:
    assert [d.compatibility for d in compare_states(state(stored), state(wanted))] == ([effect] if effect else [])


def test_values_keep_their_amount() -> None:
    assert migrated("decimal(10, 2)", "decimal(38, 6)", [Decimal("-12.34")]) == [Decimal("-12.340000")]
    least, most = -(2**63), 2**63 - 1
    assert migrated("long", "decimal(38, 0)", [least, most]) == [Decimal(least), Decimal(most)]
    assert migrated("byte", "decimal(5, 2)", [-128, 127]) == [Decimal("-128.00"), Decimal("127.00")]
    flinks: list[object] = ["1", "-2.5", "1E+2", "0.0001"]
    assert migrated("bigdecimal", "decimal(7, 4)", flinks) == [Decimal(text) for text in flinks]


@pytest.mark.parametrize(
    ("stored", "wanted", "key"),
    [
        ("map<decimal(9, 1), int>", "map<decimal(12, 1), long>", Decimal("1.5")),
        ("map<row<a: int>, int>", "map<row<b: int>, long>", {"b": 7}),
    ],
)
def test_the_keys_of_a_migrated_map_get_their_present_type(stored: str, wanted: str, key: object) -> None:
    before = {"a": 7} if isinstance(key, dict) else key
    assert migrated(stored, wanted, [[(before, 2)], [], [(before, 3)]]) == [[(key, 2)], [], [(key, 3)]]


@pytest.mark.parametrize("text", ["0.00001", "12345"])
def test_a_big_decimal_that_does_not_fit_is_an_error(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="a bigdecimal that does not fit") as caught:
        migrated("bigdecimal", "decimal(7, 4)", [text])
    assert caught.value.kind == "state-schema-changed"


@pytest.mark.parametrize(
    ("stored", "wanted", "same"),
    [
        ("decimal(9, 2)", "decimal(12, 2)", True),
        ("bigdecimal", "decimal(12, 2)", True),
        ("decimal(12, 2)", "decimal(9, 2)", False),
        ("tuple<long, decimal(9, 2)>", "tuple<long, decimal(9, 3)>", False),
        ("tuple<long, decimal(9, 2)>", "tuple<long, bigdecimal>", True),
        ("decimal(9, 2)", "sql<DECIMAL(9, 2)>", False),
    ],
)
def test_keys_are_the_same_if_their_bytes_are(stored: str, wanted: str, same: bool) -> None:
    assert keeps_bytes(parse_type(stored), parse_type(wanted)) is same
