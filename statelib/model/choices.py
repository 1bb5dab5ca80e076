"""The backends and strategies that a pipeline file can choose, under the names that it has for them."""

from enum import StrEnum


class Backend(StrEnum):
    """The holder of a subtask's live state while a run changes it."""

    HEAP = "heap"
    """In memory, as Arrow columns."""
    ROCKSDB = "rocksdb"
    """In a RocksDB database on the worker's disk."""


class Strategy(StrEnum):
    """The way in which a checkpoint writes the state of a subtask."""

    CANONICAL = "canonical"
    """In one stream that every backend restores."""
    FULL = "full"
    """In the backend's own form, all of it each time."""
    INCREMENTAL = "incremental"
    """In RocksDB's files, of which only new ones are written."""
    CHANGELOG = "changelog"
    """As a log of changes over state that an earlier checkpoint wrote."""


NATIVE_SAVEPOINT = Strategy.FULL
"""The strategy of a savepoint in the backend's own form."""
REFERRING = (Strategy.INCREMENTAL, Strategy.CHANGELOG)
"""The strategies whose checkpoints refer to files of earlier ones."""
