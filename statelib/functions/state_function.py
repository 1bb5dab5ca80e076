"""The port of a state function: how a batch of events changes one state."""

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.keyed import KeyedStateBackend


class StateFunction(Protocol):
    """Pure data until applied: cheap to make, picklable, shipped to Spark's workers."""

    @property
    def state(self) -> str: ...

    def apply(
        self, backend: KeyedStateBackend, events: pa.Table, keys: pa.Array, groups: npt.NDArray[np.int32]
    ) -> None:
        """Apply events of one subtask. ``events``: the declared columns; ``keys[i]``: key of row i,
        never null, a struct f0, f1, ... where the key has several columns; ``groups[i]``: its key group.
        The declared aggregates take an interval's events in any number of batches, user functions
        get all of them in one.
        """
        ...
