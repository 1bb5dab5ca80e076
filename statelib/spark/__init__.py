"""Spark around the library: reading sources and snapshots, the driver and the worker of a checkpoint."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("statelib", "statelib-metadata")
"""What :func:`register` makes known."""


def register(spark: "SparkSession") -> None:
    """Let ``spark.read`` know the :data:`FORMATS`, in this session: Spark keeps a name for the first session of an
    application that registers it, and refuses it to others (``DATA_SOURCE_ALREADY_EXISTS``)."""
    from statelib.spark.dataframe.formats import register_formats  # importing this package stays free of PySpark

    register_formats(spark)
