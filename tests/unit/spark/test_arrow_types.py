"""Columns of a state in the types that Spark has."""

from datetime import time

import pyarrow as pa
import pytest

from statelib.spark.dataframe.arrow_types import batches_of, spark_schema

NOON = time(12, 0, 0, 1000)
NOON_NS = (12 * 3600 * 1000 + 1) * 1_000_000


@pytest.mark.parametrize("type_", [pa.time32("ms"), pa.time64("us"), pa.time64("ns")])
def test_a_time_of_day_is_a_number_of_nanoseconds(type_: pa.DataType) -> None:
    nested = pa.struct([("at", type_), ("all", pa.list_(type_)), ("by", pa.map_(pa.string(), type_))])
    rows = [{"at": NOON, "all": [NOON, None], "by": [("a", NOON)]}, None]
    table = pa.table({"at": pa.array([NOON, None], type_), "value": pa.array(rows, nested)})
    (batch,) = batches_of(table, spark_schema(table.schema))
    assert batch["at"].to_pylist() == [NOON_NS, None]
    assert batch["value"].to_pylist() == [{"at": NOON_NS, "all": [NOON_NS, None], "by": [("a", NOON_NS)]}, None]
