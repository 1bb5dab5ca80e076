"""The interface of a state function, which changes one state by a batch of events and by the progress of time."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend

END_OF_TIME_MS = 2**63 - 1
"""The watermark after the last event in epoch milliseconds: ``Watermark.MAX_WATERMARK`` of Flink."""


@dataclass(frozen=True)
class Progress:
    """The progress of event time by one interval, in epoch milliseconds.

    ``before_ms`` is the watermark after the earlier intervals. ``after_ms`` is the watermark after this interval, the
    last millisecond before its end. All events up to a watermark have been applied. ``draining`` means that no event
    will ever follow, so that every event-time timer is due (``--drain`` of Flink)."""

    before_ms: int
    after_ms: int
    draining: bool = False

    @property
    def event_time_ms(self) -> int:
        """The current time of event-time timers. A timer is due if it is not later."""
        return END_OF_TIME_MS if self.draining else self.after_ms

    @property
    def processing_time_ms(self) -> int:
        """The current time of processing-time timers.

        It is the end of the interval, so that a replay has the same result."""
        return self.after_ms + 1


@dataclass(frozen=True)
class Ignored:
    """The numbers of events that were not applied to one state.

    ``late``: events that came too late for all of their windows. ``without_user_key``: other events whose user key is
    null, so that they are left out of a map."""

    late: int = 0
    without_user_key: int = 0


class StateFunction(Protocol):
    """A function that changes one state. It is picklable and cheap to create, because it is sent to Spark's workers."""

    @property
    def state(self) -> str:
        """The name of the state."""
        ...

    def apply(
        self,
        backend: KeyedStateBackend,
        events: pa.Table,
        keys: pa.Array,
        groups: npt.NDArray[np.int32],
        progress: Progress,
        *,
        operator: OperatorStateBackend | None = None,
    ) -> Ignored:
        """Apply events of one subtask, and return the numbers of those that were ignored.

        ``events`` has the declared columns. ``keys[i]`` is the key of row i; it is never null, and it is a struct f0,
        f1, ... if the key has several columns. ``groups[i]`` is its key group. ``operator`` is the operator state of
        the subtask, for user functions with that parameter. Declared aggregates accept the events of an interval in any
        number of batches, but user functions need all of them in one.
        """
        ...

    def advance(
        self, backend: KeyedStateBackend, progress: Progress, *, operator: OperatorStateBackend | None = None
    ) -> None:
        """Fire the timers that are due at the end of the interval. Call it after the events have been applied."""
        ...
