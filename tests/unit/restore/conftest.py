"""Stored snapshots of the sample state."""

from collections.abc import Callable
from pathlib import Path

import pytest

from statelib.testing.stored_snapshots import Stored, stored_canonical, stored_heap, stored_rocksdb


@pytest.fixture
def canonical(tmp_path: Path) -> Callable[[bool], Stored]:
    """Return a function that makes a canonical snapshot, compressed or not."""
    return lambda compressed: stored_canonical(tmp_path / "storage", compressed)


@pytest.fixture
def heap_native(tmp_path: Path) -> Callable[[bool], Stored]:
    """Return a function that makes a native snapshot of the heap backend, compressed or not."""
    return lambda compressed: stored_heap(tmp_path / "storage", compressed)


@pytest.fixture
def full(tmp_path: Path) -> Stored:
    """Return a full RocksDB snapshot."""
    return stored_rocksdb(tmp_path / "storage", tmp_path / "backend")
