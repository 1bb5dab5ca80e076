"""The Spark code of statelib: reading sources and snapshots, and the driver and the workers of a checkpoint."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("statelib", "statelib-metadata")
"""The names of the formats that :func:`register` adds to ``spark.read``."""

REMOTE = "SPARK_REMOTE"
"""The variable in which PySpark expects the URL of a Spark Connect server."""


def is_remote_url(master: str) -> bool:
    """Return whether the text is the URL of a Spark Connect server, and not a master of Spark."""
    return master.startswith("sc://")


def register(spark: "SparkSession") -> None:
    """Register the :data:`FORMATS` for ``spark.read`` in this session. Spark allows this in one session per
    application: in a second session it raises ``DATA_SOURCE_ALREADY_EXISTS``."""
    from statelib.spark.dataframe.formats import register_formats  # importing this package stays free of PySpark

    register_formats(spark)
