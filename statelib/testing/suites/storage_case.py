"""What suites of tests need to know of the storage under test."""

from pathlib import Path
from typing import Protocol

import pytest

from statelib.model.ids import AttemptId, CheckpointId
from statelib.storage.views import (
    CheckpointedStateScope,
    CheckpointOutputStream,
    CheckpointStorageCoordinatorView,
    CheckpointStorageWorkerView,
    CheckpointStreamFactory,
    StateReader,
    StorageReference,
)

ATTEMPT = AttemptId("0123456789abcdef" * 2)
OTHER_ATTEMPT = AttemptId("f" * 32)
ID = CheckpointId(7)
SIZES = (0, 1, 99, 100, 101, 4095, 4096, 4097, 300_000)
"""Stream sizes around the inline threshold of 100 bytes that the suite asks for."""


class Storage(CheckpointStorageWorkerView, CheckpointStorageCoordinatorView, Protocol):
    """Both views in one object."""


def content(size: int) -> bytes:
    """Bytes in which a shift or a swapped block shows."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


class StorageCase:
    """Override the three methods; storage may inline streams of up to 100 bytes, or all of them.

    ``scope``: of the streams that are written; run the suite for both."""

    scope = CheckpointedStateScope.EXCLUSIVE

    def make_storage(self, directory: Path) -> Storage:
        """A new storage that may write below ``directory``."""
        raise NotImplementedError

    def make_reader(self, reference: StorageReference) -> StateReader:
        """Reads what was written under ``reference``."""
        raise NotImplementedError

    def stored_names(self, reference: StorageReference) -> set[str]:
        """Everything that lies under ``reference`` outside of handles, temporary files included."""
        raise NotImplementedError

    def worker(self, storage: Storage) -> CheckpointStorageWorkerView:
        """What workers are given of ``storage``."""
        return storage

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Storage:
        return self.make_storage(tmp_path)

    @pytest.fixture
    def reference(self, storage: Storage) -> StorageReference:
        return storage.initialize_location(ID)

    @pytest.fixture
    def streams(self, storage: Storage, reference: StorageReference) -> CheckpointStreamFactory:
        return self.worker(storage).resolve_checkpoint_storage_location(ID, reference, ATTEMPT, 0)

    def open(self, streams: CheckpointStreamFactory) -> CheckpointOutputStream:
        return streams.create_stream(self.scope)
