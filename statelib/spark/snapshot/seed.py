"""The seed of a pipeline: state that was computed elsewhere, from which the pipeline begins in place of events."""

from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame

from statelib.savepoints.opened import Checkpoint
from statelib.spark.snapshot.subtask.interval_events import Change


@dataclass(frozen=True)
class SeedRows:
    """Rows that Spark moves to the subtasks that own their keys. ``columns``: the columns of ``frame``, which include
    those of the key. ``change``: the function that puts the rows of a subtask into its state."""

    frame: DataFrame
    columns: pa.Schema
    change: Change


@dataclass(frozen=True)
class Seed:
    """State that was computed elsewhere: ``rows`` of a table, or the keyed state of the selected operator of a
    ``snapshot``. ``text``: where it comes from, with all that decides what it is; two seeds with equal texts are
    equal."""

    text: str
    rows: SeedRows | None = None
    snapshot: Checkpoint | None = None
