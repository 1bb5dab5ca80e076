"""Spark's column with the owner of an event gives the same subtask as the key groups everywhere else."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from statelib.definition.columns import event_schema, key_array
from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.model.key_groups import subtask_of
from statelib.serializers.entries.keys import key_groups
from statelib.spark.events.owners import owner

ROWS = 2000
HASHED_TO_LEAST = -2089875627
"""The murmur hash of this int is the least possible one, which has no absolute value."""
PIPELINE = """\
name: owned
source:
  path: "{{data}}/{{start}}-{{end}}"
  columns: {{a: boolean, b: byte, c: short, d: int, e: long, s: string}}
key: [{key}]
max_parallelism: {max_parallelism}
states:
  seen: {{kind: value, value: {{agg: count}}}}
on_null_key: drop
backend: heap
parallelism: 1
checkpoint: {{strategy: canonical}}
"""


def columns(seed: int) -> pa.Table:
    """Return random numbers of all sizes, the least and the greatest of each type, and nulls."""
    random = np.random.default_rng(seed)
    arrays = {}
    for name, type_ in {"b": pa.int8(), "c": pa.int16(), "d": pa.int32(), "e": pa.int64()}.items():
        limits = np.iinfo(type_.to_pandas_dtype())
        values = random.integers(limits.min, limits.max, ROWS, limits.dtype, endpoint=True)
        values[::3] >>= random.integers(0, limits.bits - 1, len(values[::3])).astype(limits.dtype)
        values[:4] = [limits.min, limits.max, 0, -1]
        if limits.bits >= 32:
            values[4] = HASHED_TO_LEAST
        arrays[name] = pa.array(values, mask=random.random(ROWS) < 0.05)
    flags = pa.array(random.random(ROWS) < 0.5, mask=random.random(ROWS) < 0.05)
    return pa.table({"a": flags, **arrays, "s": arrays["e"].cast(pa.string())})


@pytest.mark.parametrize(
    ("key", "max_parallelism", "parallelism"),
    [("e", 128, 3), ("d", 32768, 7), ("a, b, c, d, e", 100, 100), ("b", 1, 1), ("s", 128, 5)],
)
def test_every_row_is_sent_to_the_subtask_that_owns_its_key_group(
    spark: SparkSession, tmp_path: Path, key: str, max_parallelism: int, parallelism: int
) -> None:
    path = tmp_path / "owned.yaml"
    path.write_text(PIPELINE.format(key=key, max_parallelism=max_parallelism))
    pipeline = load_pipeline(path)
    events = columns(seed=41).cast(event_schema(pipeline))
    assert expected(pipeline, events, parallelism) == owners_by_spark(spark, pipeline, events, parallelism)


def expected(pipeline: Pipeline, events: pa.Table, parallelism: int) -> list[int]:
    keyed = np.all([events[name].is_valid().to_numpy() for name in pipeline.key], axis=0)
    groups = key_groups(pipeline.schema(), key_array(pipeline, events.filter(pa.array(keyed))))
    owners = np.zeros(len(events), np.int32)
    owners[keyed] = subtask_of(groups, parallelism, pipeline.max_parallelism)
    return owners.tolist()


def owners_by_spark(spark: SparkSession, pipeline: Pipeline, events: pa.Table, parallelism: int) -> list[int]:
    frame = spark.createDataFrame(events).select(owner(pipeline, parallelism).alias("owner"))
    return frame.toArrow()["owner"].to_pylist()
