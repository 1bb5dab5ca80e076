"""The time to live of state: the time after its last access at which it expires."""

from dataclasses import dataclass
from enum import StrEnum


class TtlUpdate(StrEnum):
    """The kinds of access that restart the time to live (Flink's UpdateType). The values are the words of a pipeline
    file."""

    ON_CREATE_AND_WRITE = "on_create_and_write"
    ON_READ_AND_WRITE = "on_read_and_write"


@dataclass(frozen=True)
class TtlConfig:
    """The time to live of one state: a value expires ``duration_ms`` milliseconds after its last access.

    As in Flink, a snapshot does not hold this configuration; the pipeline that restores the snapshot sets it."""

    duration_ms: int
    update: TtlUpdate = TtlUpdate.ON_CREATE_AND_WRITE
