"""The limit of memory storage."""

import pytest

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.handles import ByteStreamStateHandle, RelativeFileStateHandle
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.storage.ports.views import CheckpointedStateScope, CheckpointStreamFactory
from statelib.testing.memory_storage import MemoryCheckpointStorage, MemoryReader

LIMIT = 5_242_880


@pytest.fixture
def streams() -> CheckpointStreamFactory:
    storage = MemoryCheckpointStorage(PipelineName("flights"))
    reference = storage.initialize_location(CheckpointId(1))
    return storage.resolve_checkpoint_storage_location(CheckpointId(1), reference, AttemptId("a" * 32), 0)


@pytest.mark.parametrize("scope", CheckpointedStateScope)
def test_state_up_to_the_limit_stays_inline(streams: CheckpointStreamFactory, scope: CheckpointedStateScope) -> None:
    stream = streams.create_stream(scope)
    stream.write(bytes(LIMIT))
    handle = stream.close_and_get_handle().handle
    assert isinstance(handle, ByteStreamStateHandle)
    assert handle.size_bytes == LIMIT


@pytest.mark.parametrize("pieces", [(LIMIT + 1,), (LIMIT, 1), (1, LIMIT)])
def test_one_byte_more_is_refused_with_size_and_limit(
    streams: CheckpointStreamFactory, pieces: tuple[int, ...]
) -> None:
    stream = streams.create_stream(CheckpointedStateScope.EXCLUSIVE)

    def write() -> None:
        for size in pieces:
            stream.write(bytes(size))

    with pytest.raises(InvalidRequestError) as caught:
        write()
    assert caught.value.kind == "state-too-large"
    assert str(LIMIT + 1) in str(caught.value)
    assert f"at most {LIMIT}" in str(caught.value)


def test_memory_storage_refuses_handles_of_files() -> None:
    with pytest.raises(UnsupportedError) as caught:
        MemoryReader().read(RelativeFileStateHandle("x", 1))
    assert caught.value.kind == "not-in-memory"
