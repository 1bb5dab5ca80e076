"""Which subtask owns each event, as a column of Spark: in the JVM where its own functions give Flink's key group.

For whole numbers and booleans they do, so such keys do not visit Python before the shuffle. For all other keys a
function on Arrow batches asks :func:`statelib.serializers.keys.key_groups`. Source: flink-formats.md section 1.1.
"""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from statelib.definition.columns import event_schema, key_array
from statelib.definition.pipeline import Pipeline
from statelib.model.key_groups import subtask_of
from statelib.serializers.keys import key_groups

_WORD = 0xFFFFFFFF
_SIGN = 0x80000000
_LEAST = -(1 << 31)
_TO_SEED_0 = -1693959553
"""Spark's ``hash`` of several columns takes the hash of one as the seed of the next and begins with 42; that of this
number is 0. With seed 0 it is Flink's murmur of an int, bit for bit."""

_HASHES: dict[str, Callable[[Column], Column]] = {
    "boolean": lambda column: f.when(column, 1231).otherwise(1237).cast("bigint"),
    "byte": lambda column: column.cast("bigint"),
    "short": lambda column: column.cast("bigint"),
    "int": lambda column: column.cast("bigint"),
    "long": lambda column: column.bitwiseXOR(f.shiftrightunsigned(column, 32)),
}
"""Java's hash code of a value, in the low 32 bits of a long."""


def owner(pipeline: Pipeline, parallelism: int) -> Column:
    """The subtask that owns each row; rows without a key go to subtask 0, which counts them."""
    columns = [f.col(f"`{name}`") for name in pipeline.key]
    types = [str(pipeline.column_types()[name]) for name in pipeline.key]
    if not all(name in _HASHES for name in types):
        # PySpark's types demand the kind of function, PySpark itself warns when it is given.
        return arrow_udf(_on_batches(pipeline, parallelism), "int")(*columns)  # type: ignore[call-overload,no-any-return]
    hashes = [_HASHES[name](column) for name, column in zip(types, columns, strict=True)]
    total = hashes[0]
    for one in hashes[1:]:
        total = total.bitwiseAND(_WORD) * 31 + one.bitwiseAND(_WORD)
    # no cast from a long to an int may overflow: Spark may be told to refuse that
    signed = (total.bitwiseAND(_WORD).bitwiseXOR(_SIGN) - _SIGN).cast("int")
    murmur = f.hash(f.lit(_TO_SEED_0), signed)
    key_group = f.when(murmur == _LEAST, 0).otherwise(f.abs(murmur.cast("bigint"))) % pipeline.max_parallelism
    subtask = f.floor(key_group * parallelism / pipeline.max_parallelism).cast("int")
    missing = columns[0].isNull()
    for column in columns[1:]:
        missing = missing | column.isNull()
    return f.when(missing, 0).otherwise(subtask)


def _on_batches(pipeline: Pipeline, parallelism: int) -> Callable[..., pa.Array]:
    schema = pipeline.schema()
    wanted = pa.schema([event_schema(pipeline).field(name) for name in pipeline.key])

    def owners(*columns: pa.Array) -> pa.Array:
        table = pa.table(list(columns), names=wanted.names).cast(wanted)
        valid = np.ones(len(table), bool)
        for name in wanted.names:
            valid &= pc.is_valid(table[name]).to_numpy()
        subtasks = np.zeros(len(table), np.int32)
        if valid.any():
            keys = key_array(pipeline, table.filter(pa.array(valid)))
            subtasks[valid] = subtask_of(key_groups(schema, keys), parallelism, schema.max_parallelism)
        return pa.array(subtasks)

    return owners
