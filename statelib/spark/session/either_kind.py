"""The parts of Spark that a run needs beyond DataFrames, in a session of either kind: the driver is in this process,
or in a Spark Connect server.

All other modules use the API that both kinds have. Only the code here may use ``sparkContext`` and the JVM."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Observation, SparkSession, is_remote

_GROUP = "spark.jobGroup.id"
_NO_PATH = "/statelib-asks-which-file-system-this-is"
_SPLITS = re.compile(r"\bsplits=(?:Some\()?(\d+)")


def analysed(frame: DataFrame) -> DataFrame:
    """Return ``frame`` after Spark has analysed it, so that an error in it is raised here, also through Spark
    Connect."""
    frame.schema  # noqa: B018
    return frame


@contextmanager
def cancellable(spark: SparkSession, group: str) -> Iterator[Callable[[], object]]:
    """Yield a function that cancels the Spark jobs that this thread starts in the block. Any thread may call it."""
    if is_remote():
        tag = group.replace(",", " ")  # no tag may contain one
        spark.addTag(tag)
        try:
            yield lambda: spark.interruptTag(tag)
        finally:
            spark.removeTag(tag)
        return
    context = spark.sparkContext
    context.setJobGroup(group, group)
    try:
        yield lambda: context.cancelJobGroup(group)
    finally:
        context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type]  # None unsets it


def default_file_system(spark: SparkSession) -> str:
    """Return the URI of the file system to which paths without a scheme belong, such as ``file:``.

    A server of Spark Connect shows the settings of Hadoop only where they are Spark's too. So Spark completes the path
    of a file that does not exist."""
    if not is_remote():
        return hadoop_setting(spark, "fs.defaultFS") or "file:"
    try:
        spark.read.format("text").load(_NO_PATH).schema  # noqa: B018 - it makes Spark look for the path
    except AnalysisException as error:
        return (error.getMessageParameters() or {}).get("path", "").removesuffix(_NO_PATH)
    return ""


def hadoop_setting(spark: SparkSession, name: str) -> str:
    """Return a setting of Hadoop, '' if it is not set. A server of Spark Connect gives only those that
    Spark's own configuration contains (``spark.hadoop.*``)."""
    if is_remote():
        return spark.conf.get(f"spark.hadoop.{name}", "") or ""
    return str(spark.sparkContext._jsc.hadoopConfiguration().get(name, ""))


def cores(spark: SparkSession) -> int:
    """Return the number of tasks that the session can run at once."""
    if not is_remote():
        return spark.sparkContext.defaultParallelism
    splits = _SPLITS.search(str(spark.sql("EXPLAIN SELECT * FROM range(1)").collect()[0][0]))
    return int(splits[1]) if splits else 1


def observed(rows: DataFrame, name: str, metric: Column) -> tuple[DataFrame, Callable[[DataFrame], int | None]]:
    """Return ``rows`` with an observed whole number, and a function that returns the number after a DataFrame made of
    them was collected. It is None if Spark's optimiser removed the observation."""
    if is_remote():
        observation = Observation(name)
        return rows.observe(observation, metric.alias(name)), lambda _run: observation.get.get(name)
    return rows.observe(name, metric.alias(name)), lambda run: _observed_in_jvm(run, name)


def _observed_in_jvm(run: DataFrame, name: str) -> int | None:
    """``Observation`` would wait for ever for a number that Spark does not compute."""
    metric = run._jdf.queryExecution().observedMetrics().get(name)
    return int(metric.get().getLong(0)) if metric.isDefined() else None
