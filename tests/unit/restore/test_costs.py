"""The costs of reading a state as a whole and of reading single entries, compared as the planner does."""

import pytest

from statelib.model.handles import (
    ChangelogStateBackendHandleImpl,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
)
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.restore.costs import reading_costs

GB = 10**9
ENTRY_BYTES = 200


def stored(size_bytes: int, tables: int = 64) -> ChangelogStateBackendHandleImpl:
    groups = KeyGroupRange(0, 127)
    shared = tuple((f"{n:06d}.sst", FileStateHandle(f"/state/{n}", size_bytes // tables)) for n in range(tables))
    private = (("CURRENT", FileStateHandle("/state/c", 20)), ("MANIFEST-000005", FileStateHandle("/state/m", 5_000)))
    files = IncrementalRemoteKeyedStateHandle(
        checkpoint_id=1,
        backend_uid="uid",
        key_group_range=groups,
        checkpointed_size_bytes=size_bytes,
        meta=FileStateHandle("/state/meta", 500),
        shared=shared,
        private=private,
        state_handle_id="id",
    )
    return ChangelogStateBackendHandleImpl(groups, 0, (files,), (), 1, CheckpointId(1), "uid")


@pytest.mark.parametrize(("touched", "cheaper"), [(0.00001, True), (0.0004, True), (0.004, False), (0.1, False)])
def test_single_entries_are_cheaper_for_few_touched_keys_of_a_large_state(touched: float, cheaper: bool) -> None:
    costs = reading_costs(stored(50 * GB), round(50 * GB / ENTRY_BYTES * touched), 1)
    assert costs.favours_touched == cheaper


def test_costs_grow_with_the_keys_and_end_at_all_blocks() -> None:
    handle = stored(GB)
    touched = [reading_costs(handle, keys, 2).touched for keys in (0, 10, 10_000, 10**9, 10**12)]
    assert touched == sorted(touched)
    assert touched[-1] == touched[-2]
    assert touched[0] < reading_costs(handle, 0, 2).whole


def test_an_empty_table_has_no_blocks() -> None:
    assert reading_costs(stored(0, tables=1), 10, 1).touched > 0
