"""The conversion of state columns from Arrow types to Spark types: first the schema, then the columns themselves."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from statelib.errors import UnsupportedError
from statelib.serializers.columns.arrow import list_bounds, present, with_nulls

ROWS = 65_536
"""The most rows per batch, because the JVM holds a whole batch in memory."""


def spark_schema(schema: pa.Schema) -> StructType:
    """Return the Spark schema for the columns of an Arrow schema. Structs stay structs. An instant becomes Spark's
    ``timestamp`` and a local date-time its ``timestamp_ntz``, both in microseconds. A local time becomes ``bigint``, in
    nanoseconds of the day, and a ``char`` becomes ``int``.

    Raises UnsupportedError (``no-spark-type``)."""
    try:
        return from_arrow_schema(pa.schema([field.with_type(_supported(field.type)) for field in schema]), True)
    except PySparkTypeError as error:
        raise UnsupportedError(
            f"columns {schema.names}: {error}", kind="no-spark-type", hint="name others with the option 'columns'"
        ) from error


def spark_type(arrow: pa.DataType) -> DataType:
    """Return the Spark type for one Arrow type, by the rules of :func:`spark_schema`. Raises UnsupportedError
    (``no-spark-type``)."""
    return spark_schema(pa.schema([("value", arrow)]))["value"].dataType


def batches_of(table: pa.Table, schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield the columns that ``schema`` names, in its types. Timestamps are rounded down to microseconds."""
    target = to_arrow_schema(schema)
    columns = [_as(table[field.name], field.type) for field in target]
    yield from pa.Table.from_arrays(columns, schema=target).to_batches(max_chunksize=ROWS)


def _supported(arrow: pa.DataType) -> pa.DataType:
    """Return the type with times of day as int64 and uint16 as int32. Spark's own type for times of day is switched off
    by default, and Spark has no unsigned types."""
    if pa.types.is_time(arrow):
        return pa.int64()
    return pa.int32() if pa.types.is_uint16(arrow) else _within(arrow, _supported)


def _in_nanoseconds(arrow: pa.DataType) -> pa.DataType:
    """Return the type with all times of day in nanoseconds."""
    return pa.time64("ns") if pa.types.is_time(arrow) else _within(arrow, _in_nanoseconds)


def _within(arrow: pa.DataType, changed: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a nested type with other types in it; another type unchanged."""
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(changed(field.type)) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(changed(arrow.value_type)))
    if pa.types.is_map(arrow):
        return pa.map_(changed(arrow.key_type), arrow.item_field.with_type(changed(arrow.item_type)))
    return arrow


def _as(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if column.type == target:
        return column
    floored = pa.chunked_array([_floored(chunk) for chunk in column.chunks], column.type)
    return floored.cast(_in_nanoseconds(column.type)).cast(target, safe=False)


def _floored(values: pa.Array) -> pa.Array:
    """Return the values with all timestamps rounded down to whole microseconds. A cast would round them towards
    1970."""
    type_ = values.type
    if pa.types.is_timestamp(type_):
        return pc.floor_temporal(values, unit="microsecond") if type_.unit == "ns" else values
    if not (pa.types.is_struct(type_) or pa.types.is_list(type_) or pa.types.is_map(type_)):
        return values
    present_values, valid = present(values)
    if pa.types.is_struct(type_):
        parts = [_floored(part) for part in present_values.flatten()]
        floored = pa.StructArray.from_arrays(parts, fields=list(type_)) if parts else present_values
    elif pa.types.is_list(type_):
        bounds = pa.array(list_bounds(present_values), pa.int32())
        floored = pa.ListArray.from_arrays(bounds, _floored(present_values.values), type=type_)
    else:
        bounds = pa.array(list_bounds(present_values), pa.int32())
        keys, items = _floored(present_values.keys), _floored(present_values.items)
        floored = pa.MapArray.from_arrays(bounds, keys, items, type=type_)
    return with_nulls(floored, valid)
