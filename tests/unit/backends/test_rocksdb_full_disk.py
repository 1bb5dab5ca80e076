"""A full disk: the error is one of the machine, and nothing is left in the working directory."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.rocksdb.writing import new_tables
from statelib.errors import RetryableError
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.testing.keyed_samples import fill, put, sample_schema


@contextmanager
def full_disk() -> Iterator[None]:
    """Limit the size of every file to 500 bytes, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_failed_checkpoint_leaves_no_temporary_directory_and_the_backend_can_be_closed(tmp_path: Path) -> None:
    backend = RocksDBKeyedStateBackend(sample_schema(), KeyGroupRange(0, 127), str(tmp_path / "backend"), "uid")
    fill(backend)
    with full_disk():
        with pytest.raises(RetryableError, match="File too large"):
            backend.checkpoint(CheckpointId(1))
        assert [path.name for path in (tmp_path / "backend").iterdir()] == ["db"]
        backend.close()
    assert list(tmp_path.iterdir()) == []


def test_a_state_that_cannot_be_written_anew_is_an_error_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_tables, "FEWEST_ENTRIES", 1)
    backend = RocksDBKeyedStateBackend(sample_schema(), KeyGroupRange(0, 127), str(tmp_path / "backend"), "uid")
    with full_disk(), pytest.raises(RetryableError, match=r"writing tables of state 'means': .*File too large"):
        put(backend, "means", [f"key-{number}" for number in range(500)], [0.5] * 500)
    assert [path.name for path in (tmp_path / "backend").iterdir()] == ["db"]
    backend.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_at_the_path_of_a_checkpoint_leaves_no_temporary_directory(tmp_path: Path) -> None:
    backend = RocksDBKeyedStateBackend(sample_schema(), KeyGroupRange(0, 127), str(tmp_path / "backend"), "uid")
    fill(backend)
    (tmp_path / "backend" / "chk-1").write_bytes(b"")
    with pytest.raises(Exception, match="chk-1"):
        backend.checkpoint(CheckpointId(1))
    assert {path.name for path in (tmp_path / "backend").iterdir()} == {"db", "chk-1"}
    backend.close()
