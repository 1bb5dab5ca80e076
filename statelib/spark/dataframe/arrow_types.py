"""Columns of state as Spark's types: which those are, and the columns in exactly the form that Spark takes."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkTypeError
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from statelib.errors import UnsupportedError
from statelib.serializers.columns import list_bounds, present, with_nulls

ROWS = 65_536
"""In a batch: the JVM holds a batch as a whole."""


def spark_schema(schema: pa.Schema) -> StructType:
    """Structs stay structs. Instants are Spark's ``timestamp``, local date-times its ``timestamp_ntz``, both in
    microseconds; local times its ``bigint``, in nanoseconds of the day; a ``char`` is its ``int``.

    Raises UnsupportedError (``no-spark-type``)."""
    try:
        return from_arrow_schema(pa.schema([field.with_type(_known(field.type)) for field in schema]), True)
    except PySparkTypeError as error:
        raise UnsupportedError(
            f"columns {schema.names}: {error}", kind="no-spark-type", hint="name others with the option 'columns'"
        ) from error


def spark_type(arrow: pa.DataType) -> DataType:
    """As :func:`spark_schema`, of one column."""
    return spark_schema(pa.schema([("value", arrow)]))["value"].dataType


def batches_of(table: pa.Table, schema: StructType) -> Iterator[pa.RecordBatch]:
    """The columns of ``schema`` in its types; what a timestamp has below a microsecond is cut off."""
    target = to_arrow_schema(schema)
    columns = [_as(table[field.name], field.type) for field in target]
    yield from pa.Table.from_arrays(columns, schema=target).to_batches(max_chunksize=ROWS)


def _known(arrow: pa.DataType) -> pa.DataType:
    """The type with all times of day as numbers, because Spark's own type for them is switched off by default, and
    with nothing unsigned, which Spark does not have."""
    if pa.types.is_time(arrow):
        return pa.int64()
    if pa.types.is_uint16(arrow):
        return pa.int32()
    if pa.types.is_struct(arrow):
        return pa.struct([field.with_type(_known(field.type)) for field in arrow])
    if pa.types.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(_known(arrow.value_type)))
    if pa.types.is_map(arrow):
        return pa.map_(_known(arrow.key_type), arrow.item_field.with_type(_known(arrow.item_type)))
    return arrow


def _as(column: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    if column.type == target:
        return column
    return pa.chunked_array([_floored(chunk) for chunk in column.chunks], column.type).cast(target, safe=False)


def _floored(values: pa.Array) -> pa.Array:
    """The values with all timestamps at the last whole microsecond up to them: a cast goes towards 1970 instead."""
    type_ = values.type
    if pa.types.is_timestamp(type_):
        return pc.floor_temporal(values, unit="microsecond") if type_.unit == "ns" else values
    if not (pa.types.is_struct(type_) or pa.types.is_list(type_) or pa.types.is_map(type_)):
        return values
    kept, valid = present(values)
    if pa.types.is_struct(type_):
        parts = [_floored(part) for part in kept.flatten()]
        floored = pa.StructArray.from_arrays(parts, fields=list(type_)) if parts else kept
    elif pa.types.is_list(type_):
        floored = pa.ListArray.from_arrays(pa.array(list_bounds(kept), pa.int32()), _floored(kept.values), type=type_)
    else:
        bounds = pa.array(list_bounds(kept), pa.int32())
        floored = pa.MapArray.from_arrays(bounds, _floored(kept.keys), _floored(kept.items), type=type_)
    return with_nulls(floored, valid)
