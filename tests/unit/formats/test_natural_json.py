"""Typed JSON as plain JSON."""

import pytest

from statelib.formats.text.natural_json import natural
from statelib.model.types import LONG, STRING, Field, ListOf, MapOf, Nullable, Row, Ttl, Tuple

ONE, TEXT = {"type": "long", "v": 1}, {"type": "string", "v": "x"}


@pytest.mark.parametrize(
    ("typed", "plain"),
    [
        ({"type": "null"}, None),
        ({"type": "double", "v": "1.5", "bits": "3ff8000000000000"}, 1.5),
        ({"type": "float", "v": "-Infinity", "bits": "ff800000"}, "-Infinity"),
        ({"type": "double", "v": "1.0E-5", "bits": ""}, 1e-5),
        ({"type": "char", "v": 233}, "é"),
        ({"type": "bytes", "hex": "00ff"}, "AP8="),
        ({"type": "bigint", "v": "-170141183460469231731687303715884105728"}, -(2**127)),
        ({"type": "bigint", "v": "-" + "9" * 5000}, "-" + "9" * 5000),
        ({"type": "bigdecimal", "unscaled": "-5", "scale": 3}, "-0.005"),
        ({"type": "bigdecimal", "unscaled": "1250", "scale": 2}, "12.50"),
        ({"type": "bigdecimal", "unscaled": "7", "scale": -3}, "7E3"),
        ({"type": "bigdecimal", "unscaled": "7", "scale": 2000}, "7E-2000"),
        ({"type": "instant", "sec": -1, "nano": 500_000_000}, "1969-12-31T23:59:59.5Z"),
        ({"type": "localtime", "nanoOfDay": 3_723_000_000_001}, "01:02:03.000000001"),
        ({"type": "localdatetime", "date": "2024-02-29", "nanoOfDay": 0}, "2024-02-29T00:00:00"),
        ({"type": "sqltimestamp", "v": 1001, "nanos": 1_000_001}, "1970-01-01T00:00:01.001000001Z"),
        ({"type": "enum", "v": "RED", "ordinal": 0}, "RED"),
        ({"type": "timewindow", "start": 0, "end": 5}, {"start": 0, "end": 5}),
        ({"type": "list", "v": [ONE, {"type": "null"}]}, [1, None]),
        ({"type": "map", "v": [[ONE, TEXT]]}, {"1": "x"}),
        ({"type": "map", "v": [[{"type": "list", "v": [ONE]}, TEXT]]}, [[[1], "x"]]),
        ({"type": "pojo", "class": "a.B", "v": {"f": TEXT}}, {"f": "x"}),
        ({"type": "row", "kind": "-D", "v": [ONE, TEXT]}, [1, "x"]),
        ({"type": "rowdata", "kind": "+I", "v": [ONE]}, [1]),
        ({"type": "either", "side": "left", "v": ONE}, 1),
        ({"type": "opaque", "serializer": "s", "hex": "00"}, {"serializer": "s", "hex": "00"}),
        ({"type": "decoded", "class": "c", "v": [1]}, [1]),
    ],
)
def test_typed_values_become_plain_json(typed: dict[str, object], plain: object) -> None:
    assert natural(typed) == plain


def test_rows_become_objects_if_their_fields_have_names() -> None:
    row = {"type": "row", "kind": "+I", "v": [ONE, TEXT]}
    assert natural(row, Ttl(Row((Field("n", LONG), Field("t", STRING))))) == {"n": 1, "t": "x"}
    assert natural(row, Row((Field("f0", LONG), Field("f1", STRING)))) == [1, "x"]


def test_rows_within_lists_maps_and_tuples_are_objects_too() -> None:
    row, kind = {"type": "row", "kind": "+I", "v": [ONE]}, Row((Field("n", LONG),))
    assert natural({"type": "list", "v": [row, row]}, Ttl(ListOf(kind))) == [{"n": 1}, {"n": 1}]
    assert natural({"type": "map", "v": [[TEXT, row]]}, MapOf(STRING, Nullable(kind))) == {"x": {"n": 1}}
    assert natural({"type": "tuple2", "v": [ONE, row]}, Tuple((LONG, kind))) == [1, {"n": 1}]
    best = {"type": "row", "kind": "+I", "v": [{"type": "list", "v": [row]}]}
    assert natural(best, Row((Field("best", ListOf(kind)),))) == {"best": [{"n": 1}]}
