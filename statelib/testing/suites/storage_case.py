"""The base of the storage suites: the methods that describe the storage under test, and the fixtures made of them."""

from pathlib import Path
from typing import Protocol

import pytest

from statelib.model.ids import AttemptId, CheckpointId
from statelib.storage.ports.views import (
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
"""Stream sizes in bytes, some of them around the inline threshold of 100 bytes that the suite requires."""


class Storage(CheckpointStorageWorkerView, CheckpointStorageCoordinatorView, Protocol):
    """A storage that has both views, the worker's and the coordinator's."""


def content(size: int) -> bytes:
    """Return ascending numbers of 4 bytes each, in which a test notices shifted bytes and exchanged blocks."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


class StorageCase:
    """The base of a suite of storage tests. A subclass overrides the three methods that raise NotImplementedError.

    The storage may inline all streams, or streams of up to 100 bytes. ``scope``: the scope of the streams that the
    tests write; run the suite once per scope."""

    scope = CheckpointedStateScope.EXCLUSIVE

    def make_storage(self, directory: Path) -> Storage:
        """Return a new storage that may write below ``directory``."""
        raise NotImplementedError

    def make_reader(self, reference: StorageReference) -> StateReader:
        """Return a reader of the streams that were written under ``reference``."""
        raise NotImplementedError

    def stored_names(self, reference: StorageReference) -> set[str]:
        """Return the names of all files under ``reference``, temporary files included. Inline bytes have no name."""
        raise NotImplementedError

    def worker(self, storage: Storage) -> CheckpointStorageWorkerView:
        """Return the worker view of ``storage``. Override it if workers use another object."""
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
