"""The subtask that owns each event, as a Spark column.

For keys of whole numbers and booleans, Spark's own functions compute Flink's key group in the JVM, so that these keys
are not sent to Python before the shuffle. For all other keys, a function on Arrow batches calls
:func:`statelib.serializers.entries.keys.key_groups`. Source: docs/spec/formats.md#key-groups."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.pandas.functions import arrow_udf

from statelib.definition.columns import as_declared, event_schema, key_array
from statelib.definition.pipeline import Pipeline
from statelib.model.key_groups import subtask_of
from statelib.serializers.entries.keys import key_groups
from statelib.spark.events.source_types import quoted

_WORD, _SIGN = 0xFFFFFFFF, 0x80000000
_TO_SEED_0 = -1693959553
"""The number whose hash in Spark is 0. Spark's ``hash`` of several columns uses the hash of one column as the seed of
the next, and begins with the seed 42. With the seed 0, Spark's hash of an int is equal to Flink's murmur hash."""

_HASHES = {
    "boolean": "IF({0}, 1231L, 1237L)",
    "byte": "CAST({0} AS BIGINT)",
    "short": "CAST({0} AS BIGINT)",
    "int": "CAST({0} AS BIGINT)",
    "long": "({0} ^ shiftrightunsigned({0}, 32))",
}
"""The SQL expression per type for Java's hash code of a value, in the low 32 bits of a long."""


def owner(pipeline: Pipeline, parallelism: int) -> Column:
    """Return a column with the index of the subtask that owns each row. Rows whose key is null belong to subtask 0,
    which counts them."""
    columns = [quoted(name) for name in pipeline.key]
    types = [str(pipeline.column_types()[name]) for name in pipeline.key]
    if not all(name in _HASHES for name in types):
        # The type stubs of PySpark require the kind of function, but PySpark warns if it is passed.
        return arrow_udf(owners_of(pipeline, parallelism), "int")(*columns)  # type: ignore[call-overload,no-any-return]
    hashes = [_HASHES[name].format(column) for name, column in zip(types, columns, strict=True)]
    return f.expr(_in_sql(columns, hashes, pipeline.max_parallelism, parallelism))


def _in_sql(columns: Sequence[str], hashes: Sequence[str], max_parallelism: int, parallelism: int) -> str:
    """Return the SQL expression for the owner of a row. It is one text, because an expression of Column objects needs
    one JVM call per part."""
    total = hashes[0]
    for column_hash in hashes[1:]:
        total = f"(({total} & {_WORD}) * 31 + ({column_hash} & {_WORD}))"
    # No cast from a long to an int may overflow, because Spark raises an error for that in ANSI mode.
    signed = f"CAST((({total} & {_WORD}) ^ {_SIGN}) - {_SIGN} AS INT)"
    # The absolute value of the hash; the least int, which has no positive counterpart, becomes 0.
    murmur = f"(abs(CAST(hash({_TO_SEED_0}, {signed}) AS BIGINT)) & {_SIGN - 1})"
    subtask = f"CAST({murmur} % {max_parallelism} * {parallelism} DIV {max_parallelism} AS INT)"
    return f"IF({' OR '.join(f'{column} IS NULL' for column in columns)}, 0, {subtask})"


def owners_of(pipeline: Pipeline, parallelism: int) -> Callable[..., pa.Array]:
    """Return a function from the key's columns, as Arrow arrays, to the int32 index of the subtask that owns each row.
    Rows whose key is null belong to subtask 0."""
    schema = pipeline.schema()
    wanted = pa.schema([event_schema(pipeline).field(name) for name in pipeline.key])

    def owners(*columns: pa.Array) -> pa.Array:
        table = pa.table(list(map(as_declared, columns, wanted)), schema=wanted)
        valid = np.ones(len(table), bool)
        for name in wanted.names:
            valid &= pc.is_valid(table[name]).to_numpy()
        subtasks = np.zeros(len(table), np.int32)
        if valid.any():
            keys = key_array(pipeline, table.filter(pa.array(valid)))
            subtasks[valid] = subtask_of(key_groups(schema, keys), parallelism, schema.max_parallelism)
        return pa.array(subtasks)

    return owners
