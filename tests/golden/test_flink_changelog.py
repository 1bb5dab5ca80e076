"""Changelog checkpoints of Flink contain exactly the state that the jobs recorded: logs alone, and logs over
RocksDB's files."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, StatelibError, UnsupportedError
from statelib.formats.changelog.change_set import decode_stream
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.formats.text.typed_json import entry_lines
from statelib.model.handles import (
    ByteStreamStateHandle,
    ChangeFileStateHandle,
    ChangelogStateBackendHandleImpl,
    ChangelogStateHandleStreamImpl,
    InMemoryChangelogStateHandle,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.types import LONG
from statelib.restore.changelog.change_log import with_whole_files
from statelib.restore.entries import iter_entries
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.restore.plan import RestoreSource
from statelib.restore.union_schema import union_schema
from statelib.savepoints.opened import open_checkpoint
from statelib.storage.ports.views import StateReader
from statelib.testing.keyed_samples import all_entries
from tests.golden.flink_fixtures import KEYED_KINDS, ROOT, opened

FIXTURES = ["1.20.5/hashmap-changelog", "1.20.5/rocksdb-changelog-materialized", "2.3.0/rocksdb-changelog"]
UID = "5a7b0000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Taken:
    """One checkpoint of a fixture, whose files are read from their present place."""

    directory: Path
    sources: tuple[RestoreSource, ...]
    truth: list[str]


def checkpoints() -> Iterator[tuple[str, str, str]]:
    for fixture in FIXTURES:
        about = json.loads((ROOT / fixture / "about.json").read_text())
        yield from ((fixture, snapshot["path"], snapshot["truth"]) for snapshot in about["snapshots"])


def load(fixture: str, path: str, truth: str) -> Taken:
    checkpoint = opened(ROOT / fixture, path)
    reader = checkpoint.reader()
    handles = [s.keyed for operator in checkpoint.operators for _, s in operator.subtasks if s.keyed is not None]
    sources = tuple(source_of(with_whole_files(handle), reader) for handle in handles)
    lines = map(json.loads, (ROOT / fixture / truth).read_text(encoding="utf-8").splitlines())
    return Taken(ROOT / fixture / path, sources, sorted(normal(line) for line in lines if line["kind"] in KEYED_KINDS))


def normal(line: dict[str, object]) -> str:
    """Return the line without the operator: metadata of version 4 have only its id."""
    return json.dumps({k: v for k, v in line.items() if k != "op"}, sort_keys=True)


def source_of(handle: object, reader: StateReader) -> RestoreSource:
    assert isinstance(handle, ChangelogStateBackendHandleImpl)
    return RestoreSource(handle, reader, union_schema(reader, {0: handle}, 128, "log", LONG), None, partial=True)


@pytest.fixture(params=list(checkpoints()), ids=lambda c: f"{c[0]}-{c[1][-5:]}")
def taken(request: pytest.FixtureRequest) -> Taken:
    return load(*request.param)


def lines_of(sources: tuple[RestoreSource, ...], scratch: Path) -> list[str]:
    return sorted(
        normal(json.loads(line))
        for number, source in enumerate(sources)
        for index, rows in iter_entries(source, None, str(scratch / str(number)))
        for line in entry_lines(
            "keyed",
            source.schema,
            source.schema.states[index],
            rows,
        )
    )


def test_every_entry_equals_that_of_the_job(taken: Taken, tmp_path: Path) -> None:
    assert len(taken.truth) > 300
    assert lines_of(taken.sources, tmp_path) == taken.truth
    assert list(tmp_path.iterdir()) == []


def test_logs_with_and_without_materialised_state_are_tested() -> None:
    handles = [source.handle for case in checkpoints() for source in load(*case).sources]
    kinds = {len(h.materialized) for h in handles if isinstance(h, ChangelogStateBackendHandleImpl)}
    assert kinds == {0, 1}


def test_the_handles_are_written_back_unchanged(taken: Taken) -> None:
    data = (taken.directory / "_metadata").read_bytes()
    metadata, _ = decode_metadata(data)
    operators = tuple(replace(o, name="", uid="") for o in metadata.operators)
    again = replace(metadata, version=3, operators=operators, properties=b"")
    assert decode_metadata(encode_metadata(again))[0] == again


def test_a_changelog_checkpoint_is_restored_into_either_backend_at_another_parallelism(
    taken: Taken, tmp_path: Path
) -> None:
    schema = taken.sources[0].schema
    whole = all_entries(restore_heap(schema, KeyGroupRange(0, 127), taken.sources, str(tmp_path / "whole")))
    assert all(entries for name, entries in whole.items() if not name.startswith("_timer_state"))
    parts: dict[str, dict[bytes, bytes]] = {name: {} for name in whole}
    for number, key_groups in enumerate((KeyGroupRange(0, 40), KeyGroupRange(41, 99), KeyGroupRange(100, 127))):
        backend = restore_rocksdb(schema, key_groups, taken.sources, str(tmp_path / f"db{number}"), UID)
        for name, entries in all_entries(backend).items():
            assert all(key[0] in key_groups for key in entries)
            parts[name] |= entries
        backend.close()
    assert parts == whole


def test_a_log_inside_the_metadata_is_read_the_same(tmp_path: Path) -> None:
    """The handle with tag 9 contains the changes of a file one by one."""
    taken = load(*next(checkpoints()))
    sources = []
    for source in taken.sources:
        assert isinstance(source.handle, ChangelogStateBackendHandleImpl)
        changes = tuple(change for part in source.handle.log for change in changes_in(source, part))
        log = (InMemoryChangelogStateHandle(source.handle.key_group_range, 0, 1, changes, "x"),)
        sources.append(replace(source, handle=replace(source.handle, log=log)))
    assert lines_of(tuple(sources), tmp_path) == taken.truth


def changes_in(source: RestoreSource, part: object) -> Iterator[tuple[int, bytes]]:
    """Return the changes by a simple walk over the change sets, one length after the other."""
    assert isinstance(part, ChangelogStateHandleStreamImpl)
    for stream, offset in part.segments:
        data, at = bytes(source.reader.read(stream))[1:], offset + 4
        for _ in range(int.from_bytes(data[offset : offset + 4], "big")):
            count, group = (int.from_bytes(data[i : i + 4], "big", signed=True) for i in (at, at + 4))
            at += 8
            for _ in range(count):
                size = int.from_bytes(data[at : at + 4], "big")
                yield group, data[at + 4 : at + 4 + size]
                at += 4 + size


def test_a_log_without_a_key_type_is_refused() -> None:
    source = load(*next(checkpoints())).sources[0]
    assert isinstance(source.handle, ChangelogStateBackendHandleImpl)
    with pytest.raises(UnsupportedError) as caught:
        union_schema(source.reader, {0: source.handle}, 128, "log")
    assert caught.value.kind == "unknown-key-type"


@pytest.mark.parametrize("flip", [True, False])
def test_damage_gives_a_typed_error_or_other_entries(flip: bool, tmp_path: Path) -> None:
    """Flink's files have no checksum: damage must never end in an error other than those of statelib."""
    taken = load(*next(checkpoints()))
    source = taken.sources[0]
    assert isinstance(source.handle, ChangelogStateBackendHandleImpl)
    (part,) = source.handle.log
    assert isinstance(part, ChangelogStateHandleStreamImpl)
    ((stream, offset),) = part.segments
    whole = bytes(source.reader.read(stream))
    for at in range(offset + 1, len(whole), 97):
        data = bytes([*whole[:at], whole[at] ^ 0x91, *whole[at + 1 :]]) if flip else whole[:at]
        log = (replace(part, segments=((ByteStreamStateHandle("x", data), offset),)),)
        damaged = (replace(source, handle=replace(source.handle, log=log)),)
        try:
            lines = lines_of(damaged, tmp_path)
        except StatelibError:
            continue
        assert flip
        assert len(lines) > 0


def test_a_moved_snapshot_with_its_log_elsewhere_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        open_checkpoint(str(load(*next(checkpoints())).directory)).schema()
    assert caught.value.kind == "outside-root"


def test_a_compressed_log_has_the_size_that_flink_counted() -> None:
    """The size is that of the decompressed bytes without the first one; the file itself is smaller, or at most a
    little larger."""
    folder = ROOT / "1.20.5" / "rocksdb-changelog-compressed"
    reader = (checkpoint := opened(folder)).reader()
    handles = [h for h in checkpoint.handles() if isinstance(h, ChangelogStateBackendHandleImpl)]
    handle = next(h for h in handles if not h.materialized)
    part = handle.log[0]
    assert isinstance(part, ChangelogStateHandleStreamImpl)
    stream, offset = part.segments[0]
    assert isinstance(stream, ChangeFileStateHandle)
    raw = reader.read(stream)
    assert len(raw) < stream.size_bytes == len(decode_stream(raw, "log"))
    for size_bytes, kind in ((stream.size_bytes - 1, "corrupt-changelog"), (len(raw) // 3, "size-mismatch")):
        log = (replace(part, segments=((replace(stream, size_bytes=size_bytes), offset),)),)
        with pytest.raises(CorruptStateError) as caught:
            union_schema(reader, {0: replace(handle, log=log)}, 128, "log", LONG)
        assert caught.value.kind == kind
