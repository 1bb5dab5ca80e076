"""How long state lives after its last access."""

from dataclasses import dataclass
from enum import StrEnum


class TtlUpdate(StrEnum):
    """What counts as an access; the values are the words of a pipeline file (Flink's UpdateType)."""

    ON_CREATE_AND_WRITE = "on_create_and_write"
    ON_READ_AND_WRITE = "on_read_and_write"


@dataclass(frozen=True)
class TtlConfig:
    """State not accessed for ``duration_ms`` is gone. As in Flink, it is nowhere in a snapshot: the
    pipeline that restores decides."""

    duration_ms: int
    update: TtlUpdate = TtlUpdate.ON_CREATE_AND_WRITE
