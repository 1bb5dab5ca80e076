"""A delta that several subtasks have kept, each for some key groups."""

import numpy as np
import pyarrow as pa

from statelib.backends.operator.side_data import SideData, StoredSideData
from statelib.functions.mending.kept_delta import KeptDelta, decoded
from statelib.model.handles import ByteStreamStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import FieldMeaning, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.testing.memory_storage import MemoryReader
from statelib.wire.ragged import from_list

COUNTED = StateDescriptor("s", StateKind.VALUE, LONG, meanings=(FieldMeaning("", "count"),))


def stored_delta(keys: list[bytes], before: int, start: int, end: int) -> StoredSideData:
    """Return a stored delta that counts for some key groups."""
    values = [pa.array([value] * len(keys), pa.int64()) for value in (1, before)]
    delta = KeptDelta(COUNTED, from_list(keys), np.zeros(len(keys), np.bool_), *values)
    handle = ByteStreamStateHandle(f"before {before}", delta.encoded())
    return StoredSideData("d", KeyGroupRange(start, end), handle, None, "", MemoryReader(), True)


def test_the_replaced_part_of_a_divided_delta_does_not_count() -> None:
    keys = [b"\0a", b"\1b", b"\2c"]
    stored = SideData(
        "d", [stored_delta(keys, 10, 0, 0), stored_delta(keys[1:2], 20, 1, 1), stored_delta(keys, 10, 2, 3)]
    )
    delta = decoded(COUNTED, "d", stored.read_parts(), 4)
    assert delta.keys.to_list() == keys
    assert delta.before.to_pylist() == [10, 20, 10]
