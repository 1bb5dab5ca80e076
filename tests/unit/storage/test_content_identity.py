"""CRC-32C and XXH3 together identify the content of a file. Both are computed in one pass, stored when a file is
written, and compared when it is verified."""

from dataclasses import replace
from pathlib import Path

import xxhash

from statelib.model.checkpoint import FileRecord
from statelib.model.ids import AttemptId, CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.storage.filesystem.inventory import verify_files
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.testing.suites.storage_case import content
from statelib.wire.checksum import content_hash, crc32c


def test_both_checksums_of_parts_equal_those_of_the_whole():
    data, result = content(10_000), content_hash(b"")
    for start in range(0, len(data), 777):
        result.update(memoryview(data)[start : start + 777])
    assert (result.crc32c, result.xxh3) == (crc32c(data), xxhash.xxh3_64_intdigest(data))


def written(tmp_path: Path, size: int) -> tuple[str, FileRecord]:
    storage = FileSystemCheckpointStorage(str(tmp_path), PipelineName("flights"), 100)
    reference = storage.initialize_location(CheckpointId(1))
    streams = storage.resolve_checkpoint_storage_location(CheckpointId(1), reference, AttemptId("a" * 32), 0)
    stream = streams.create_stream(CheckpointedStateScope.EXCLUSIVE)
    for part in (content(size)[:150], content(size)[150:]):
        stream.write(part)
    done = stream.close_and_get_handle()
    path = getattr(done.handle, "path", "")
    return reference.directory, FileRecord(path, done.size_bytes, done.crc32c, 0, KeyGroupRange(0, 1), done.xxh3)


def test_a_written_stream_has_both_checksums(tmp_path: Path):
    for size in (99, 5000):
        _, record = written(tmp_path / str(size), size)
        assert record.xxh3 == xxhash.xxh3_64_intdigest(content(size))


def test_other_content_with_the_same_crc_is_detected(tmp_path: Path):
    directory, record = written(tmp_path, 5000)
    assert record.xxh3 is not None
    (good,) = verify_files(directory, [record], True)
    assert (good.problem, good.actual_xxh3) == ("", record.xxh3)
    (bad,) = verify_files(directory, [replace(record, xxh3=record.xxh3 ^ 1)], True)
    assert (bad.problem, bad.actual_crc, bad.actual_xxh3) == ("checksum", record.crc32c, record.xxh3)
    (older,) = verify_files(directory, [replace(record, xxh3=None)], True)
    assert (older.problem, older.actual_xxh3) == ("", None)
