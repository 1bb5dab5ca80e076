"""The port of a state function: how a batch of events, and the passing of time, change one state."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator import OperatorStateBackend

END_OF_TIME_MS = 2**63 - 1
"""The watermark behind the last event, as ``Watermark.MAX_WATERMARK`` of Flink."""


@dataclass(frozen=True)
class Progress:
    """Event time, as epoch milliseconds: the watermark that the intervals before this one have reached,
    and that of this one, the last moment before its end. All events up to a watermark have been seen.

    ``draining``: no event will ever follow, so that every event-time timer is due (``--drain`` of Flink)."""

    before_ms: int
    after_ms: int
    draining: bool = False

    @property
    def event_time_ms(self) -> int:
        """The clock of event-time timers: a timer is due that is not later than this."""
        return END_OF_TIME_MS if self.draining else self.after_ms

    @property
    def processing_time_ms(self) -> int:
        """The clock of processing-time timers: the end of the interval, so that a replay repeats itself."""
        return self.after_ms + 1


class StateFunction(Protocol):
    """Pure data until applied: cheap to make, picklable, shipped to Spark's workers."""

    @property
    def state(self) -> str: ...

    def apply(
        self,
        backend: KeyedStateBackend,
        events: pa.Table,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        progress: Progress,
        *,
        operator: OperatorStateBackend | None = None,
    ) -> int:
        """Apply events of one subtask; returns how many were too late to count. ``events``: the declared
        columns; ``keys[i]``: key of row i, never null, a struct f0, f1, ... where the key has several
        columns; ``groups[i]``: its key group. ``operator``: the subtask's operator state, for functions
        that ask for it. The declared aggregates take an interval's events in any number of batches, user
        functions get all of them in one.
        """
        ...

    def advance(
        self, backend: KeyedStateBackend, progress: Progress, *, operator: OperatorStateBackend | None = None
    ) -> None:
        """Fire the timers that are due at the end of the interval, once its events have been applied."""
        ...
