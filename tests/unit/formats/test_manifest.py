"""statelib's manifest behind Flink's bytes: round trip, and no damage goes unnoticed."""

import dataclasses

import numpy as np
import pytest

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats import manifest as module
from statelib.formats.manifest import append_manifest, read_checkpoint_file
from statelib.formats.metadata import decode_metadata, encode_metadata
from statelib.formats.operator_id import operator_id
from statelib.model.checkpoint import (
    CheckpointManifest,
    CheckpointMetadata,
    DataInterval,
    EventCounts,
    FileRecord,
    OperatorState,
    OperatorSubtaskState,
    SnapshotKind,
    SourcePosition,
)
from statelib.model.handles import (
    ByteStreamStateHandle,
    KeyGroupsSavepointStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
)
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.model.types import DOUBLE, LONG, STRING, Field, Row, Tuple

RANGE = KeyGroupRange(0, 1)
SCHEMA = KeyedStateSchema(
    Tuple((STRING, LONG)),
    2,
    (
        StateDescriptor("activity", StateKind.VALUE, Row((Field("flights", LONG), Field("distance", DOUBLE)))),
        StateDescriptor("per_dest", StateKind.MAP, LONG, STRING),
    ),
)
STATISTICS = tuple(
    StateStatistics(RANGE, np.array([3, n], np.int64), np.array([2**64 - 1, n], np.uint64)) for n in (0, 5)
)
MANIFEST = CheckpointManifest(
    pipeline=PipelineName("flights"),
    checkpoint_id=CheckpointId(17),
    kind=SnapshotKind.CHECKPOINT,
    strategy="canonical",
    epoch=Epoch(4),
    attempt=AttemptId("0" * 32),
    generation=1,
    base=CheckpointId(16),
    created_at_ms=1_700_000_000_000,
    position=SourcePosition(DataInterval(-5, 10), 9),
    events=EventCounts(8, 7, 1),
    schema=SCHEMA,
    files=(FileRecord("a-0-0", 400, 0xFFFFFFFF, 0, RANGE),),
    statistics=STATISTICS,
    sync_ms=1,
    async_ms=2,
)


def metadata() -> bytes:
    keyed = KeyGroupsSavepointStateHandle(RANGE, (0, 99), RelativeFileStateHandle("a-0-0", 400))
    operator = OperatorStreamStateHandle((("statelib.source-position", 0, (2,)),), ByteStreamStateHandle("p", b"abc"))
    state = OperatorState(operator_id("keyed"), 1, 2, ((0, OperatorSubtaskState(keyed, operator)),))
    return encode_metadata(CheckpointMetadata(17, (state,)))


def assert_same(left: CheckpointManifest, right: CheckpointManifest) -> None:
    assert dataclasses.replace(left, statistics=()) == dataclasses.replace(right, statistics=())
    assert len(left.statistics) == len(right.statistics)
    for a, b in zip(left.statistics, right.statistics, strict=True):
        assert a.same_content(b)
        assert (b.entries.dtype, b.digests.dtype) == (np.int64, np.uint64)


@pytest.mark.parametrize(
    "manifest",
    [
        MANIFEST,
        dataclasses.replace(
            MANIFEST, base=None, kind=SnapshotKind.SAVEPOINT, position=SourcePosition(None, -(2**63)), files=()
        ),
    ],
    ids=["checkpoint", "first savepoint"],
)
def test_round_trip(manifest: CheckpointManifest) -> None:
    data = append_manifest(metadata(), manifest)
    assert data.startswith(metadata())
    found, read = read_checkpoint_file(data)
    assert found == decode_metadata(metadata())[0]
    assert read is not None
    assert_same(manifest, read)
    assert append_manifest(metadata(), read) == data


def test_what_a_snapshot_wrote_is_recorded() -> None:
    _, read = read_checkpoint_file(append_manifest(metadata(), dataclasses.replace(MANIFEST, uploaded_bytes=1 << 40)))
    assert read is not None
    assert read.uploaded_bytes == 1 << 40


def test_a_manifest_from_before_sharing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(content: dict[str, object], **_options: object) -> str:
        del content["uploaded_bytes"]
        return original(content)

    original = module.json.dumps
    monkeypatch.setattr(module.json, "dumps", without)
    data = append_manifest(metadata(), dataclasses.replace(MANIFEST, uploaded_bytes=5))
    assert b"uploaded" not in data
    _, read = read_checkpoint_file(data)
    assert read is not None
    assert_same(dataclasses.replace(MANIFEST, uploaded_bytes=None), read)


def test_every_flipped_bit_is_noticed() -> None:
    data = append_manifest(metadata(), MANIFEST)
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptStateError):
            read_checkpoint_file(bytes(damaged))


def test_every_cut_is_noticed() -> None:
    data = append_manifest(metadata(), MANIFEST)
    for size in range(len(data)):
        with pytest.raises(CorruptStateError):
            read_checkpoint_file(data[:size], "chk-17/_metadata")


def test_bytes_behind_the_file_are_noticed() -> None:
    data = append_manifest(metadata(), MANIFEST)
    for more in (b"\0", data, data[-16:]):
        with pytest.raises(CorruptStateError):
            read_checkpoint_file(data + more)


def test_a_file_of_flink_has_no_manifest() -> None:
    plain = CheckpointMetadata(1, (OperatorState(operator_id("a"), 1, 128, ()),))
    data = encode_metadata(plain)
    assert read_checkpoint_file(data) == (plain, None)
    with pytest.raises(CorruptStateError, match="manifest is missing"):
        read_checkpoint_file(data, expect_manifest=True)
    with pytest.raises(CorruptStateError, match="3 unknown bytes"):
        read_checkpoint_file(data + b"abc")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b'"epoch":4', b'"epoch":"', "not what statelib writes"),
        (b'"epoch":4', b'"eposh":4', "manifest.epoch: missing"),
        (b'"read":8', b'"read":[]', "manifest.events.read: expected int, found list"),
        (b'"read":8', b'"read":true', "manifest.events.read: expected a number"),
        (b'"pipeline":"flights"', b'"pipeline":"../ghts"', "pipeline name"),
        (b'"kind":"CHECKPOINT"', b'"kind":"CHECKPOYNT"', "CHECKPOYNT"),
        (b'"key_groups":[0,1]', b'"key_groups":[0,2]', "16 bytes, expected 24"),
        (b'"key_groups":[0,1]', b'"key_groups":[1,-1]', "key-group range"),
        (b'"end_ms":10', b'"end_ms":null', "go together"),
        (b'"statistics":[', b'"statistics":[],"s":[', "0 statistics for 2 states"),
    ],
)
def test_a_wrong_body_names_the_field(old: bytes, new: bytes, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*_args: object, **_options: object) -> str:
        assert original.count(old) >= 1
        return original.replace(old, new).decode()

    data = append_manifest(metadata(), MANIFEST)
    original = data[len(metadata()) + 16 : -16]
    monkeypatch.setattr(module.json, "dumps", changed)
    with pytest.raises(CorruptStateError, match=message) as caught:
        read_checkpoint_file(append_manifest(metadata(), MANIFEST))
    assert caught.value.kind == "corrupt-metadata"


def test_a_manifest_of_a_newer_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANIFEST_VERSION", 2)
    data = append_manifest(metadata(), MANIFEST)
    monkeypatch.undo()
    with pytest.raises(UnsupportedError, match="version 2, can be read: 1"):
        read_checkpoint_file(data)
