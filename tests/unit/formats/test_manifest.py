"""statelib's manifest behind Flink's bytes: it is read back, and any damage is detected."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.manifest import trailer as module
from statelib.formats.manifest.trailer import append_manifest, read_checkpoint_file
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.checkpoint import (
    CheckpointManifest,
    CheckpointMetadata,
    DataInterval,
    Delta,
    EventCounts,
    FileRecord,
    OperatorState,
    OperatorSubtaskState,
    RestoreMeasure,
    SegmentRecord,
    SideDataRecord,
    SnapshotKind,
    SnapshotMeasure,
    SourcePosition,
    TableVersion,
)
from statelib.model.handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsSavepointStateHandle,
    OperatorStreamStateHandle,
    RelativeFileStateHandle,
)
from statelib.model.ids import AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.model.state import (
    EVENT_TIMERS,
    FieldMeaning,
    KeyedStateSchema,
    StateDescriptor,
    StateKind,
    StateStatistics,
    no_keys,
    timers_descriptor,
)
from statelib.model.types import DOUBLE, LONG, STRING, VOID, Field, Row, Tuple

RANGE = KeyGroupRange(0, 1)
SCHEMA = KeyedStateSchema(
    Tuple((STRING, LONG)),
    2,
    (
        StateDescriptor(
            "activity",
            StateKind.VALUE,
            Row((Field("flights", LONG), Field("distance", DOUBLE))),
            meanings=(FieldMeaning("distance", "first", "miles", ("day", "hour"), (0.5, 1e300)),),
        ),
        StateDescriptor("per_dest", StateKind.MAP, LONG, STRING, meanings=(FieldMeaning("", "count"),)),
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
    files=(FileRecord("a-0-0", 400, 0xFFFFFFFF, 0, RANGE, 2**64 - 1),),
    statistics=STATISTICS,
    sync_ms=1,
    async_ms=2,
)

PIECES = (SegmentRecord(0, 100, 7), SegmentRecord(300, 100, 0xFFFFFFFF, 2**64 - 1))
MERGED = FileRecord("file:///state/flights/shared/a-0-1", 400, 5, 0, RANGE, 9, PIECES)

OWNED = FileRecord("file:///state/flights/taskowned/a-0-2", 70, 5, 0, RANGE, 9)
SIDE_DATA = (
    SideDataRecord("model", RANGE, FileStateHandle(OWNED.path, 70)),
    SideDataRecord("table", RANGE, RelativeFileStateHandle("a-0-0", 400)),
    SideDataRecord("days", RANGE, ByteStreamStateHandle("days", b"\x00\xff")),
)
DELTA = Delta(CheckpointId(16), RANGE, STATISTICS)
VERSIONS = (TableVersion("source", "0f-1", 0), TableVersion("sources.é", "x", 2**62))


def metadata() -> bytes:
    keyed = KeyGroupsSavepointStateHandle(RANGE, (0, 99), RelativeFileStateHandle("a-0-0", 400))
    operator = OperatorStreamStateHandle((("statelib.source-position", 0, (2,)),), ByteStreamStateHandle("p", b"abc"))
    state = OperatorState(operator_id("keyed"), 1, 2, ((0, OperatorSubtaskState(keyed, operator)),))
    return encode_metadata(CheckpointMetadata(17, (state,)))


def assert_same(left: CheckpointManifest, right: CheckpointManifest) -> None:
    bare = [dataclasses.replace(each, statistics=(), deltas=()) for each in (left, right)]
    assert bare[0] == bare[1]
    assert [dataclasses.replace(d, statistics=()) for d in left.deltas] == [
        dataclasses.replace(d, statistics=()) for d in right.deltas
    ]
    recorded = [(*each.statistics, *(s for d in each.deltas for s in d.statistics)) for each in (left, right)]
    assert len(recorded[0]) == len(recorded[1])
    for a, b in zip(*recorded, strict=True):
        assert a.same_content(b)
        assert (b.entries.dtype, b.digests.dtype) == (np.int64, np.uint64)


@pytest.mark.parametrize(
    "manifest",
    [
        MANIFEST,
        dataclasses.replace(
            MANIFEST, base=None, kind=SnapshotKind.SAVEPOINT, position=SourcePosition(None, -(2**63)), files=()
        ),
        dataclasses.replace(MANIFEST, files=(MERGED, *MANIFEST.files)),
        dataclasses.replace(MANIFEST, files=(OWNED, *MANIFEST.files), side_data=SIDE_DATA),
        dataclasses.replace(MANIFEST, position=SourcePosition(DataInterval(-5, 10), 9, VERSIONS)),
        dataclasses.replace(MANIFEST, deltas=(DELTA, dataclasses.replace(DELTA, checkpoint_id=CheckpointId(17)))),
    ],
    ids=["checkpoint", "first savepoint", "merged", "side data", "versions", "deltas"],
)
def test_a_manifest_is_read_back(manifest: CheckpointManifest) -> None:
    data = append_manifest(metadata(), manifest)
    assert data.startswith(metadata())
    read_back, read = read_checkpoint_file(data)
    assert read_back == decode_metadata(metadata())[0]
    assert read is not None
    assert_same(manifest, read)
    assert append_manifest(metadata(), read) == data


def test_a_merged_file_has_a_checksum_of_its_own_and_of_each_segment() -> None:
    assert MERGED.checksums() == {
        MERGED.path: (400, 5),
        f"{MERGED.path}@0+100": (100, 7),
        f"{MERGED.path}@300+100": (100, 0xFFFFFFFF),
    }
    assert MANIFEST.files[0].checksums() == {"a-0-0": (400, 0xFFFFFFFF)}
    assert MERGED.identities() == {
        MERGED.path: (400, 5, 9),
        f"{MERGED.path}@0+100": (100, 7, None),
        f"{MERGED.path}@300+100": (100, 0xFFFFFFFF, 2**64 - 1),
    }


def test_the_written_bytes_of_a_snapshot_are_recorded() -> None:
    _, read = read_checkpoint_file(append_manifest(metadata(), dataclasses.replace(MANIFEST, uploaded_bytes=1 << 40)))
    assert read is not None
    assert read.uploaded_bytes == 1 << 40


def test_the_measured_cost_of_a_snapshot_is_recorded() -> None:
    cost = dataclasses.replace(MANIFEST, upload_ms=3, keys_changed=1 << 40)
    _, read = read_checkpoint_file(append_manifest(metadata(), cost))
    assert read is not None
    assert read.measured == cost.measured == SnapshotMeasure(1, 2, 3, None, 1 << 40)


def test_the_origin_of_each_subtasks_restore_is_recorded() -> None:
    origins = ("local", "remote", "mixed", "empty")
    _, read = read_checkpoint_file(append_manifest(metadata(), dataclasses.replace(MANIFEST, restored_from=origins)))
    assert read is not None
    assert read.restored_from == origins


def test_restores_and_uid_are_recorded() -> None:
    restores = (RestoreMeasure(1 << 40, 5), None, RestoreMeasure(0, 0))
    data = append_manifest(metadata(), dataclasses.replace(MANIFEST, restores=restores, uid="elsewhere"))
    _, read = read_checkpoint_file(data)
    assert read is not None
    assert (read.restores, read.uid) == (restores, "elsewhere")


@pytest.mark.parametrize("wrong", ["[[1]]", "[[-1,2]]", "[[1,true]]", "[5]", "7"])
def test_an_impossible_measure_of_a_restore_is_damage(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(content: dict[str, object], **_options: object) -> str:
        content["restores"] = json.loads(wrong)
        return original(content)

    original = json.dumps
    monkeypatch.setattr(json, "dumps", changed)
    with pytest.raises(CorruptStateError, match=r"manifest\.restores"):
        read_checkpoint_file(append_manifest(metadata(), MANIFEST))


def test_a_manifest_of_the_version_without_shared_files_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(content: dict[str, Any], **_options: object) -> str:
        del content["uploaded_bytes"], content["restored_from"], content["restores"], content["uid"]
        del content["upload_ms"], content["keys_changed"]
        for file in content["files"]:
            del file["xxh3"]
        return original(content)

    original = json.dumps
    monkeypatch.setattr(json, "dumps", without)
    data = append_manifest(metadata(), dataclasses.replace(MANIFEST, uploaded_bytes=5, restored_from=("local",)))
    assert b"uploaded" not in data
    assert b"xxh3" not in data
    assert b"restored" not in data
    _, read = read_checkpoint_file(data)
    assert read is not None
    older = tuple(dataclasses.replace(file, xxh3=None) for file in MANIFEST.files)
    assert_same(dataclasses.replace(MANIFEST, uploaded_bytes=None, files=older), read)


def test_a_manifest_of_the_version_without_meanings_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(content: dict[str, Any], **_options: object) -> str:
        for state in content["schema"]["states"]:
            del state["meanings"]
        return original(content)

    original = json.dumps
    monkeypatch.setattr(json, "dumps", without)
    data = append_manifest(metadata(), MANIFEST)
    assert b"meanings" not in data
    _, read = read_checkpoint_file(data)
    assert read is not None
    states = tuple(dataclasses.replace(state, meanings=()) for state in SCHEMA.states)
    assert read.schema == dataclasses.replace(SCHEMA, states=states)


def test_the_columns_of_user_keys_and_windows_are_recorded() -> None:
    states = tuple(dataclasses.replace(state, user_key="page", time="at") for state in SCHEMA.states)
    schema = dataclasses.replace(SCHEMA, states=states)
    data = append_manifest(metadata(), dataclasses.replace(MANIFEST, schema=schema))
    _, read = read_checkpoint_file(data)
    assert read is not None
    assert read.schema == schema
    assert b'"time"' not in append_manifest(metadata(), MANIFEST)


def test_a_manifest_records_whether_keys_that_have_only_timers_were_counted() -> None:
    """Manifests of earlier versions do not, and such keys were counted."""
    timers = timers_descriptor(EVENT_TIMERS, "t", VOID)
    statistics = (*MANIFEST.statistics, MANIFEST.statistics[0])
    with_timers = dataclasses.replace(
        MANIFEST, schema=dataclasses.replace(SCHEMA, states=(*SCHEMA.states, timers)), statistics=statistics
    )
    counts = no_keys(all_key_groups(SCHEMA.max_parallelism))
    for manifest, is_recorded in ((with_timers, True), (MANIFEST, False)):
        for counted in (counts, dataclasses.replace(counts, with_timers=True)):
            data = append_manifest(metadata(), dataclasses.replace(manifest, keys=counted))
            _, read = read_checkpoint_file(data)
            assert read is not None
            assert read.keys is not None
            assert (b"keys_with_timers" in data) == (is_recorded and not counted.with_timers)
            assert read.keys.with_timers == (counted.with_timers or not is_recorded)


def test_the_earlier_names_of_states_are_not_recorded() -> None:
    """Earlier names describe older snapshots, not this one."""
    meanings = (FieldMeaning("", "count", renamed_from=("n",)),)
    named = dataclasses.replace(SCHEMA.states[1], meanings=meanings, renamed_from=("old",))
    schema = dataclasses.replace(SCHEMA, states=(SCHEMA.states[0], named))
    _, read = read_checkpoint_file(append_manifest(metadata(), dataclasses.replace(MANIFEST, schema=schema)))
    assert read is not None
    assert read.schema == SCHEMA


def test_every_flipped_bit_is_detected() -> None:
    data = append_manifest(metadata(), MANIFEST)
    for position in range(len(data) * 8):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(CorruptStateError):
            read_checkpoint_file(bytes(damaged))


def test_every_truncation_is_detected() -> None:
    data = append_manifest(metadata(), MANIFEST)
    for size in range(len(data)):
        with pytest.raises(CorruptStateError):
            read_checkpoint_file(data[:size], "chk-17/_metadata")


def test_bytes_after_the_manifest_are_refused() -> None:
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
        (
            b'"strategy":',
            b'"side_data":[{"name":"m","key_groups":[0,1],"path":"x"}],"strategy":',
            "its file x is not among the",
        ),
        (
            b'"strategy":',
            b'"side_data":[{"name":"m","key_groups":[0,1],"data":"!"}],"strategy":',
            "not what statelib writes",
        ),
        (b'"by":["day","hour"]', b'"by":["day",1]', r"states\[0\].meanings\[0\].by: expected texts"),
        (b'"bounds":[0.5,1e+300]', b'"bounds":[true]', r"states\[0\].meanings\[0\].bounds: expected numbers"),
    ],
)
def test_an_error_names_the_wrong_field(old: bytes, new: bytes, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(*_args: object, **_options: object) -> str:
        assert original.count(old) >= 1
        return original.replace(old, new).decode()

    data = append_manifest(metadata(), MANIFEST)
    original = data[len(metadata()) + 16 : -16]
    monkeypatch.setattr(json, "dumps", changed)
    with pytest.raises(CorruptStateError, match=message) as caught:
        read_checkpoint_file(append_manifest(metadata(), MANIFEST))
    assert caught.value.kind == "corrupt-metadata"


def test_a_manifest_of_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MANIFEST_VERSION", 2)
    data = append_manifest(metadata(), MANIFEST)
    monkeypatch.undo()
    with pytest.raises(UnsupportedError, match="version 2, can be read: 1"):
        read_checkpoint_file(data)
