"""Patterns for the names of files in the path of a source: the subtasks read the files that Spark reads."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.definition.parts.source import Source
from statelib.spark.events.source_paths import data_files

NAMES = (
    "a.parquet", "ab.parquet", "a,b.parquet", "b-1.parquet", "e+f (1).parquet", "p^.parquet", "p[1].parquet",
    "x!.parquet", "é.parquet", "UPPER.PARQUET", "_u.parquet", ".h.parquet", "d.parquet._COPYING_",
    "_c=1.parquet",
)  # fmt: skip
PATTERNS = ("*", "*.parquet", "?.parquet", "a*", "a?b*", "b-?.*", "e+*", "*(1)*", "p?.parquet", "x!*", "é*", "**.P*")


@pytest.mark.slow
@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_has_the_files_that_spark_reads(tmp_path: Path, spark: SparkSession, pattern: str) -> None:
    for name in NAMES:
        pq.write_table(pa.table({"name": [name]}), tmp_path / name)
    read = spark.read.schema("name string").parquet(f"{tmp_path}/{pattern}").collect()
    source = Source.model_validate({"path": "{data}/{start}", "columns": {"name": "string"}})
    assert sorted(Path(path).name for path in data_files(f"{tmp_path}/{pattern}", source)) == sorted(r[0] for r in read)
    assert read
