"""Emitted rows: kept in order, in parts, and handed over once."""

import pyarrow as pa

from statelib.backends.operator.emitted_rows import EmittedRows

SCHEMA = pa.schema([("n", pa.int64())])


def test_rows_are_taken_once_and_in_order() -> None:
    emitted = EmittedRows({"a": SCHEMA, "b": SCHEMA, "c": SCHEMA}, ["c"])
    assert list(emitted.taken()) == []
    numbers = list(range(200_000))
    emitted.add("b", pa.table({"n": numbers}, schema=SCHEMA))
    emitted.add("a", pa.table({"n": []}, schema=SCHEMA))
    emitted.add("b", pa.table({"n": [-1]}, schema=SCHEMA))
    ((output, stream),) = emitted.taken()
    table = pa.ipc.open_stream(stream).read_all()
    assert (output, table["n"].to_pylist()) == ("b", [*numbers, -1])
    assert list(emitted.taken()) == []
    assert emitted.of_functions.keys() == {"a", "b"}
