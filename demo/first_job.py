"""What a job of statelib asks of Spark, in small: Parquet, a shuffle, Arrow batches through Python, SQL, a collect.

Submitted once, so that Java keeps the classes that it needs (``demo/spark_start.py``); argument: a directory.
"""

import sys
from collections.abc import Iterable

import pyarrow as pa

from statelib.spark.session.local_session import new_session


def same(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    yield from batches


def main(directory: str) -> None:
    spark = new_session("first job")
    made = spark.range(1000).selectExpr("id % 7 AS key", "id AS amount", "cast(id AS string) AS text", "now() AS ts")
    made.write.mode("overwrite").parquet(directory)
    read = spark.read.parquet(directory).where("ts IS NOT NULL")
    moved = (
        read.selectExpr("*", "pmod(hash(key), 2) AS owner")
        .repartition(2, "owner")
        .mapInArrow(same, "key long, amount long, text string, ts timestamp, owner int")
    )
    moved.groupBy("key").count().orderBy("key").toArrow()
    spark.sparkContext.parallelize(range(2), 2).mapPartitions(list).collect()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
