"""The contract of a snapshot strategy with local recovery as tests: local copies alone are enough for a restore.

Subclass it and override ``new_backend``, ``restore``, and ``make_strategy``, which passes ``local=self.directories`` to
the strategy.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from statelib.backends.keyed import KeyedStateBackend
from statelib.model.ids import AttemptId, CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema
from statelib.restore.plan import RestoreSource
from statelib.snapshots.strategy import EMPTY, SnapshotResult
from statelib.storage.local.reader import LocalFirstReader
from statelib.storage.local.store import LocalSnapshotDirectories, LocalStateStore
from statelib.testing.counting_reader import CountingReader
from statelib.testing.keyed_samples import all_entries, sample_schema
from statelib.testing.suites.strategy import SnapshotStrategySuite, Stage

_FIRST = CheckpointId(1)
Files = dict[str, tuple[int, int]]


def files_of(result: SnapshotResult) -> Files:
    files = {}
    for written in (*result.streams, *result.reused):
        assert not hasattr(written.handle, "data"), "the suite expects no inline streams"
        files[written.handle.path] = (written.size_bytes, written.crc32c)
    return files


class LocalRecoverySuite(SnapshotStrategySuite):
    """The suite of snapshot strategies with a local directory beside the storage, and tests of the local copies."""

    store: LocalStateStore
    directories: LocalSnapshotDirectories

    def make_backend(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path
    ) -> KeyedStateBackend:
        self.store = LocalStateStore(str(directory.parent), "file:///storage", "suite")
        self.directories = self.store.directories(AttemptId("0" * 32), 0)
        return self.new_backend(schema, key_group_range, directory)

    def new_backend(
        self, schema: KeyedStateSchema, key_group_range: KeyGroupRange, directory: Path
    ) -> KeyedStateBackend:
        raise NotImplementedError

    def restore(self, source: RestoreSource, directory: Path) -> KeyedStateBackend:
        raise NotImplementedError

    def taken(self, stage: Stage) -> tuple[SnapshotResult, Files]:
        result = stage.take()
        self.directories.complete(_FIRST, (*result.streams, *result.reused))
        return result, files_of(result)

    def reader(self, stage: Stage, files: Files) -> tuple[CountingReader, LocalFirstReader]:
        """Return the remote reader, which counts bytes, and the reader that tries local copies before it."""
        remote = CountingReader(stage.directory, files, allowed_root=stage.directory.rpartition("/")[0])
        return remote, LocalFirstReader(remote, self.store.find(_FIRST, files))

    def source(self, stage: Stage, result: SnapshotResult, reader: LocalFirstReader) -> RestoreSource:
        assert result.keyed is not None
        return RestoreSource(result.keyed, reader, stage.backend.schema, stage.backend.statistics())

    def test_every_remote_file_has_its_copy(self, stage: Stage) -> None:
        result, files = self.taken(stage)
        assert all(written.local_name for written in result.streams)
        assert set(self.store.find(_FIRST, files)) == set(files)

    def test_a_local_restore_reads_no_remote_byte(self, stage: Stage, tmp_path: Path) -> None:
        result, files = self.taken(stage)
        for path in (tmp_path / "storage").rglob("*-*-*"):
            path.unlink()
        remote, reader = self.reader(stage, files)
        restored = self.restore(self.source(stage, result, reader), tmp_path / "again")
        assert all_entries(restored) == all_entries(stage.backend)
        restored.close()
        assert remote.read_bytes.total() == 0
        assert reader.origins == {"local"}

    @pytest.mark.parametrize("damage", ["flip", "truncate", "extend", "delete", "link", "directory"])
    def test_a_broken_copy_is_detected_and_the_remote_file_is_read_instead(
        self, stage: Stage, tmp_path: Path, damage: str
    ) -> None:
        result, files = self.taken(stage)
        for number, victim in enumerate(sorted(files)):
            local_copy = self.store.find(_FIRST, files)[victim]
            path = Path(local_copy.directory) / local_copy.copy.name
            undamaged = path.read_bytes()
            _damage(path, damage)
            remote, reader = self.reader(stage, files)
            restored = self.restore(self.source(stage, result, reader), tmp_path / f"again-{number}")
            assert all_entries(restored) == all_entries(stage.backend)
            restored.close()
            needed = not path.name.startswith("OPTIONS-")  # RocksDB writes OPTIONS anew whenever it opens the database.
            assert set(remote.read_bytes) == ({victim} if needed else set())
            assert ("remote" in reader.origins, "local" in reader.origins) == (needed, len(files) > 1)
            path.rmdir() if damage == "directory" else path.unlink(missing_ok=True)
            path.write_bytes(undamaged)

    def test_without_state_no_local_directory_is_made(self, stage_of: Callable[[KeyedStateSchema], Stage]) -> None:
        stage = stage_of(KeyedStateSchema(sample_schema().key_type, 128, ()))
        assert stage.take() is EMPTY
        assert not self.store.path.exists()

    def test_a_snapshot_that_is_not_completed_leaves_nothing(self, stage: Stage) -> None:
        with self.directories:
            result = stage.take()
            assert list(self.store.path.rglob("*"))
        assert not [path for path in self.store.path.rglob("*") if path.is_file()]
        assert self.store.find(_FIRST, files_of(result)) == {}

    def test_a_local_disk_that_cannot_be_written_loses_only_the_copies(self, stage: Stage, tmp_path: Path) -> None:
        self.store.path.parent.parent.mkdir()
        self.store.path.parent.write_bytes(b"in the way")
        result, files = self.taken(stage)
        assert self.store.find(_FIRST, files) == {}
        assert stage.read(result, tmp_path / "scratch") == all_entries(stage.backend)


def _damage(path: Path, damage: str) -> None:
    data = bytearray(path.read_bytes())
    path.unlink()  # The file is removed before writing, because a hard link may share its bytes.
    match damage:
        case "flip":
            data[len(data) // 2] ^= 4
            path.write_bytes(data)
        case "truncate":
            path.write_bytes(data[:-1])
        case "extend":
            path.write_bytes(bytes(data) + b"x")
        case "link":
            other = path.with_name("other")
            other.write_bytes(data)
            path.symlink_to(other)
        case "directory":
            path.mkdir()
