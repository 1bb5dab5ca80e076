"""A small Spark job that uses the same parts of Spark as a job of statelib does: Parquet, a shuffle, Arrow batches
through Python, SQL, a collect.

``demo/spark_start.py`` submits it once and lets Java archive the classes that it loads. Its argument is a
directory to write to.
"""

import sys
from collections.abc import Iterable

import pyarrow as pa

from statelib.spark.session.local_session import new_session


def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Yield the batches unchanged."""
    yield from batches


def main(directory: str) -> None:
    """Run the job, with its Parquet files in ``directory``."""
    spark = new_session("first job")
    rows = spark.range(1000).selectExpr("id % 7 AS key", "id AS amount", "cast(id AS string) AS text", "now() AS ts")
    rows.write.mode("overwrite").parquet(directory)
    rows_read = spark.read.parquet(directory).where("ts IS NOT NULL")
    shuffled = (
        rows_read.selectExpr("*", "pmod(hash(key), 2) AS owner")
        .repartition(2, "owner")
        .mapInArrow(same, "key long, amount long, text string, ts timestamp, owner int")
    )
    shuffled.groupBy("key").count().orderBy("key").toArrow()
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(list).collect()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
