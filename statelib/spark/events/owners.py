"""Which subtask owns each event, as a column of Spark: in the JVM where its own functions give Flink's key group.

For whole numbers and booleans they do, so such keys do not visit Python before the shuffle. For all other keys a
function on Arrow batches asks :func:`statelib.serializers.keys.key_groups`. Source: flink-formats.md section 1.1.
"""

from collections.abc import Callable, Sequence

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

_WORD, _SIGN = 0xFFFFFFFF, 0x80000000
_TO_SEED_0 = -1693959553
"""Spark's ``hash`` of several columns takes the hash of one as the seed of the next and begins with 42; that of this
number is 0. With seed 0 it is Flink's murmur of an int, bit for bit."""

_HASHES = {
    "boolean": "IF({0}, 1231L, 1237L)",
    "byte": "CAST({0} AS BIGINT)",
    "short": "CAST({0} AS BIGINT)",
    "int": "CAST({0} AS BIGINT)",
    "long": "({0} ^ shiftrightunsigned({0}, 32))",
}
"""Java's hash code of a value, in the low 32 bits of a long."""


def owner(pipeline: Pipeline, parallelism: int) -> Column:
    """The subtask that owns each row; rows without a key go to subtask 0, which counts them."""
    columns = [f"`{name}`" for name in pipeline.key]
    types = [str(pipeline.column_types()[name]) for name in pipeline.key]
    if not all(name in _HASHES for name in types):
        # PySpark's types demand the kind of function, PySpark itself warns when it is given.
        return arrow_udf(owners_of(pipeline, parallelism), "int")(*columns)  # type: ignore[call-overload,no-any-return]
    hashes = [_HASHES[name].format(column) for name, column in zip(types, columns, strict=True)]
    return f.expr(_in_sql(columns, hashes, pipeline.max_parallelism, parallelism))


def _in_sql(columns: Sequence[str], hashes: Sequence[str], max_parallelism: int, parallelism: int) -> str:
    """One text: an expression of columns costs a call to the JVM for each of its parts."""
    total = hashes[0]
    for one in hashes[1:]:
        total = f"(({total} & {_WORD}) * 31 + ({one} & {_WORD}))"
    # No cast from a long to an int may overflow: Spark may be told to refuse that.
    signed = f"CAST((({total} & {_WORD}) ^ {_SIGN}) - {_SIGN} AS INT)"
    # Without its sign; the least int, which has no positive, becomes 0.
    murmur = f"(abs(CAST(hash({_TO_SEED_0}, {signed}) AS BIGINT)) & {_SIGN - 1})"
    subtask = f"CAST({murmur} % {max_parallelism} * {parallelism} DIV {max_parallelism} AS INT)"
    return f"IF({' OR '.join(f'{column} IS NULL' for column in columns)}, 0, {subtask})"


def owners_of(pipeline: Pipeline, parallelism: int) -> Callable[..., pa.Array]:
    """As :func:`owner`, of the key's columns as Arrow arrays."""
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
