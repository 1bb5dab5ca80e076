"""Inputs that are made to do harm: names and paths, headers and lengths, decompression bombs, wrong types, code,
files that are none. Every one of them has to be refused with a typed error; :mod:`jail` describes how that is
checked."""

import json
import os
import pickle
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import cramjam

from statelib.formats import snappy_framing
from statelib.formats.keyed.header import encode_header
from statelib.formats.manifest.manifest_json import manifest_to_json
from statelib.formats.manifest.trailer import append_manifest, read_checkpoint_file
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.checkpoint import CheckpointManifest, CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    IncrementalRemoteKeyedStateHandle,
    KeyGroupsSavepointStateHandle,
    RelativeFileStateHandle,
    SegmentFileStateHandle,
    SegmentScope,
    StreamStateHandle,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG
from statelib.wire.checksum import crc32c

ID = b"\x07" * 16
GROUPS = KeyGroupRange(0, 0)
SECRET = "secret-canary"
"""The content of the file outside the root, which must never be shown."""


SCHEMA = KeyedStateSchema(LONG, 128, (StateDescriptor("count", StateKind.VALUE, LONG),))
PACKED = encode_header(SCHEMA, compressed=True)
"""A header in front of compressed key groups."""


class Payload:
    """An object that leaves a mark when it is unpickled."""

    def __init__(self, mark: str) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (self.mark,)


def tricks(outside: Path) -> list[str]:
    """Return names and paths that lead elsewhere, or seem to."""
    secret = str(outside / "secret")
    return [
        "..", ".", "", "/", "//", "../x", "../../secret", "a/../../secret", "a/b", "a//b", "./a", "a/.", "a/..",
        "..a/..", secret, f"/{secret}", f"file:{secret}", f"file://{secret}", f"FILE://{secret}", f"file://evil.example{secret}",
        f"file:///%2e%2e{secret}", "%2e%2e/secret", "..%2fsecret", "..\\secret", "C:\\secret", "\\\\host\\share",
        "a\0b", "\0", "a\nb", "a\x1b[2J", "-rf", "--help", "*", "?", "~", "~root", "$HOME", "$(id)", "`id`", "{x}",
        "{{ 7*7 }}", "'; DROP TABLE checkpoint; --", '" OR 1=1 --', "\uff0e\uff0e/secret", "\u2024\u2024/secret",
        "\uff41", "a\u202eb",
        "a" * 10_000, "http://169.254.169.254/latest", "https://127.0.0.1:1/x", "ftp://127.0.0.1/x", "s3a://bucket/x",
        "mock:/x", "jar:file:/x", "memory://x", "data:,x", "\ud800", "nul", "chk-1/../../secret", "/proc/self/environ",
        "/dev/zero", "/dev/stdin", "/etc/passwd",
    ]  # fmt: skip


@dataclass(frozen=True)
class Files:
    """A snapshot that exists in ``directory`` once :meth:`write` was called."""

    metadata: bytes
    others: tuple[tuple[str, bytes], ...] = ()
    after: Callable[[Path], None] = lambda _: None

    def write(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "_metadata").write_bytes(self.metadata)
        for name, data in self.others:
            (directory / name).write_bytes(data)
        self.after(directory)


def of_streams(*streams: StreamStateHandle, parallelism: int = 1) -> bytes:
    """Return a ``_metadata`` like Flink's, whose only operator has canonical state in these streams."""
    subtasks = tuple(
        (index, OperatorSubtaskState(KeyGroupsSavepointStateHandle(GROUPS, (len(PACKED),), stream)))
        for index, stream in enumerate(streams)
    )
    return encode_metadata(CheckpointMetadata(1, (OperatorState(ID, parallelism, 128, subtasks),)))


def of_database(*files: tuple[str, StreamStateHandle]) -> bytes:
    """Return a ``_metadata`` like Flink's, with RocksDB's files under these names."""
    meta = ByteStreamStateHandle("meta", encode_header(SCHEMA, compressed=False))
    uid = "00000000-0000-0000-0000-000000000000"
    handle = IncrementalRemoteKeyedStateHandle(1, uid, GROUPS, 0, meta, (), files, "id")
    subtasks = ((0, OperatorSubtaskState(handle)),)
    return encode_metadata(CheckpointMetadata(1, (OperatorState(ID, 1, 128, subtasks),)))


def foreign_handles(outside: Path) -> Iterator[tuple[str, Files]]:
    """Yield handles that lead elsewhere, in a ``_metadata`` that is otherwise right."""
    for number, trick in enumerate(tricks(outside)):
        try:
            segment = SegmentFileStateHandle(trick, 0, 13, SegmentScope.SHARED, "id")
            data = of_streams(FileStateHandle(trick, 13), RelativeFileStateHandle(trick, 13), segment, parallelism=3)
        except (UnicodeError, struct.error, ValueError):
            data = of_streams(FileStateHandle(trick.encode("utf-8", "replace").decode()[:9000], 13))
        yield f"handle {number} {trick[:30]!a}", Files(data)
        if number < 30 and "\ud800" not in trick:
            name = trick[:9000]
            yield f"file name {number} {trick[:30]!a}", Files(of_database((name, ByteStreamStateHandle("x", b"x"))))


LENGTHS = (-1, -(2**31), 2**31 - 1, 2**30, 1 << 24, 65535, 0, 1)


def headers(good: bytes) -> Iterator[tuple[str, Files]]:
    """Yield counts and lengths that no file of this size can contain."""
    flink = of_streams(ByteStreamStateHandle("s", b"x" * 40))
    for at in range(8, min(len(flink) - 4, 120), 8):
        for length in LENGTHS[:5]:
            yield f"{length} at {at}", Files(flink[:at] + struct.pack(">i", length) + flink[at + 4 :])
    for cut in range(0, len(good), max(len(good) // 12, 1)):
        yield f"own file cut to {cut}", Files(good[:cut])
    for version in (-1, 0, 6, 99, 2**31 - 1):
        yield f"version {version}", Files(flink[:4] + struct.pack(">i", version) + flink[8:])
    for head in (b"", b"\0", b"PK\x03\x04", b"\x80\x04", b"%PDF", b"\x1f\x8b", b"\xac\xed\0\5", b"#!/bin/sh\n"):
        yield f"begins with {head!r}", Files(head + bytes(100))


def bombs() -> Iterator[tuple[str, Files]]:
    """Yield a few bytes that claim to be many."""
    zeros = bytes(8 << 20)
    snappy = bytes(cramjam.snappy.compress(zeros))
    packed = {
        "snappy": snappy,
        "snappy raw": bytes(cramjam.snappy.compress_raw(zeros)),
        "lz4": bytes(cramjam.lz4.compress(zeros)),
        "zstd": bytes(cramjam.zstd.compress(zeros)),
        "gzip": bytes(cramjam.gzip.compress(zeros)),
    }
    for name, data in packed.items():
        for count in (1, 40):
            yield f"{name} times {count}", Files(of_streams(ByteStreamStateHandle("s", PACKED + data * count)))
    claim = snappy_framing.STREAM_IDENTIFIER
    for size in (b"\xff\xff\x03", b"\xff\xff\xff\x7f", b"\xff" * 9 + b"\1"):
        chunk = b"\0" + (len(size) + 8).to_bytes(3, "little") + b"\0\0\0\0" + size + b"\xfe\1\0\0"
        yield f"snappy claims {size.hex()}", Files(of_streams(ByteStreamStateHandle("s", PACKED + claim + chunk * 100)))


def bodies(metadata: CheckpointMetadata, manifest: CheckpointManifest, outside: Path) -> Iterator[tuple[str, Files]]:
    """Yield manifests with right checksums and wrong content: types, depth, sizes, paths."""
    flink, good = encode_metadata(metadata), manifest_to_json(manifest)
    odd: tuple[object, ...] = (None, -1, 2**70, "x", [], {}, 1.5, True, "../../secret", str(outside / "secret"))
    for key in sorted(good):
        for value in odd[:4]:
            yield f"{key} = {value!r}", Files(with_body(flink, json.dumps({**good, key: value}).encode()))
    for depth in (100, 100_000):
        yield f"{depth} deep", Files(with_body(flink, b"[" * depth + b"]" * depth))
    yield "two million zeros", Files(with_body(flink, b"[" + b"0," * 2_000_000 + b"0]"))
    yield "a long number", Files(with_body(flink, b"9" * 5000))
    yield "a pickle", Files(with_body(flink, pickle.dumps(Payload(str(outside / "mark")))))
    for trick in tricks(outside):
        if "\ud800" in trick:
            continue
        files = tuple(replace(file, path=trick) for file in manifest.files[:1])
        yield f"file {trick[:30]!a}", Files(append_manifest(flink, replace(manifest, files=files)))


def with_body(flink: bytes, body: bytes) -> bytes:
    """Return a complete ``_metadata`` whose manifest has this body, with right checksums."""
    data = flink + b"STATELIB" + struct.pack(">II", 1, len(body)) + body
    return data + struct.pack(">II", crc32c(data), 32 + len(body)) + b"BILETATS"


def code(outside: Path) -> Iterator[tuple[str, Files]]:
    """Yield pickles and Java objects in every place where a serializer might read one, and a file beside RocksDB's
    that a library unpickles."""
    for protocol in range(6):
        bomb = pickle.dumps(Payload(str(outside / "mark")), protocol)
        yield f"pickle {protocol} as _metadata", Files(bomb)
        yield f"pickle {protocol} as state", Files(of_streams(ByteStreamStateHandle("s", bomb)))
        yield f"pickle {protocol} as a header", Files(of_streams(ByteStreamStateHandle("s", b"\0\0\0\6\0" + bomb)))
        java = b"\0\0\0\1\0\0\0\1" + b"\0" * 4 + b"\xac\xed\0\5" + bomb
        yield f"pickle {protocol} as a Java object", Files(of_streams(ByteStreamStateHandle("s", java)))
    config = json.dumps({"raw_mode": False, "prefix_extractors": {}}).encode()
    names = ("rocksdict-config.json", "000009.sst", "CURRENT", "OPTIONS-000007", "MANIFEST-000005", "LOCK", "IDENTITY")
    content = dict.fromkeys(names, b"x" * 64)
    content |= {"rocksdict-config.json": config, "CURRENT": b"../../secret\n", "OPTIONS-000007": options(outside)}
    for name in names:
        stream = RelativeFileStateHandle(name, len(content[name]))
        yield f"a database's {name}", Files(of_database((name, stream)), ((name, content[name]),))
    every = [(name, RelativeFileStateHandle(name, len(content[name]))) for name in names[1:5]]
    yield "a database of them", Files(of_database(*every), tuple(content.items()))


def options(outside: Path) -> bytes:
    """Yield options that would make RocksDB write elsewhere."""
    return (
        "[Version]\nrocksdb_version=9.9.3\noptions_file_version=1.1\n[DBOptions]\ncreate_if_missing=true\n"
        f"db_log_dir={outside}/mark\nwal_dir={outside}/mark\n[CFOptions \"default\"]\n"
        "[TableOptions/BlockBasedTable \"default\"]\n"
    ).encode()  # fmt: skip


def not_files(outside: Path) -> Iterator[tuple[str, Files]]:
    """Yield links, FIFOs, devices, sockets and directories in place of a data file, and of ``_metadata`` itself."""
    kinds: dict[str, Callable[[Path], None]] = {
        "symlink": lambda path: path.symlink_to(outside / "secret"),
        "link to a directory": lambda path: path.symlink_to(outside),
        "FIFO": os.mkfifo,
        "directory": lambda path: path.mkdir(),
        "device": lambda path: path.symlink_to("/dev/zero"),
        "endless link": lambda path: path.symlink_to(path),
    }
    stream = RelativeFileStateHandle("data", 13)
    for name, make in kinds.items():
        yield f"{name} as data", Files(of_streams(stream), after=partial(_made, make, "data"))
        yield f"{name} as _metadata", Files(b"", after=partial(_made, make, "_metadata"))


def _made(make: Callable[[Path], None], name: str, directory: Path) -> None:
    (directory / name).unlink(missing_ok=True)
    make(directory / name)


def snapshots(own: bytes, outside: Path) -> Iterator[tuple[str, Files]]:
    """Yield all hostile snapshots. ``own``: a ``_metadata`` of statelib."""
    metadata, manifest = read_checkpoint_file(own)
    assert manifest is not None
    yield from foreign_handles(outside)
    yield from headers(own)
    yield from bombs()
    yield from bodies(metadata, manifest, outside)
    yield from code(outside)
    yield from not_files(outside)
