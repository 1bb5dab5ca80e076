"""Campaigns against descriptions of state: metadata, manifests, serializers, types, Java objects, references."""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from statelib.errors import StatelibError
from statelib.formats.keyed.header import decode_keyed_header
from statelib.formats.manifest.manifest_json import manifest_to_json
from statelib.formats.manifest.trailer import read_checkpoint_file
from statelib.formats.metadata.metadata_file import decode_metadata, encode_metadata
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.handles import stream_handles
from statelib.restore.changelog.change_log import with_whole_files
from statelib.serializers.registry import codec_of
from statelib.serializers.snapshots import decode_serializer_snapshot, encode_serializer_snapshot
from statelib.serializers.type_text import parse_type
from statelib.storage.local.index import INDEX_NAME, LocalCopy, read_index, write_index
from statelib.storage.ports.views import StorageReference
from statelib.storage.references import decode_reference, encode_reference
from statelib.wire.checksum import crc32c
from statelib.wire.java_objects import read_object
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer
from tests.fuzz.campaign import Target
from tests.fuzz.samples import CANONICAL, SQL, canonical_samples, heap_handle, metadata_files, own_directory

JAVA_HEAD = b"\xac\xed\x00\x05"


def _metadata() -> Target:
    """Return the target of metadata: files as they are, and the same ones in version 3 with little inline state."""
    seeds = metadata_files(30_000)
    for name, data in metadata_files().items():
        try:
            seeds[f"{name} (3)"] = encode_metadata(_emptied(decode_metadata(data)[0]))
        except StatelibError:
            continue

    return Target(seeds, lambda _, damaged: _follow(read_checkpoint_file(damaged, "chk-1/_metadata")[0]))


def _follow(metadata: CheckpointMetadata) -> None:
    """Read every stream that the handles name."""
    for operator in metadata.operators:
        for _index, state in operator.subtasks:
            for handle in filter(None, (state.keyed, state.operator, state.raw_keyed, state.raw_operator)):
                stream_handles(handle)
            if state.keyed is not None:
                with_whole_files(state.keyed)


def _emptied(metadata: CheckpointMetadata) -> CheckpointMetadata:
    return replace(metadata, operators=tuple(map(_without_bytes, metadata.operators)))


def _without_bytes(operator: OperatorState) -> OperatorState:
    return replace(operator, subtasks=tuple((i, _short(state)) for i, state in operator.subtasks))


def _short(state: OperatorSubtaskState) -> OperatorSubtaskState:
    def short(handle: object) -> object:
        stream = getattr(handle, "stream", None)
        if stream is not None and hasattr(stream, "data"):
            return replace(handle, stream=replace(stream, data=stream.data[:20]))
        return handle

    return replace(state, keyed=short(state.keyed), operator=short(state.operator))


def _java_objects() -> Target:
    seeds: dict[str, bytes] = {}
    for name, data in metadata_files(400_000).items():
        at = data.find(JAVA_HEAD)
        while at >= 0 and len(seeds) < 60:
            seed = data[at : at + 4000]
            reader = Reader(seed, name)
            try:
                read_object(reader)
            except StatelibError:
                pass
            else:
                seeds[f"{name} {at}"] = seed[: reader.offset]
            at = data.find(JAVA_HEAD, at + 4)
    distinct = {seed: name for name, seed in seeds.items()}
    return Target(
        {name: seed for seed, name in distinct.items()}, lambda _, data: read_object(Reader(data, "Java object"))
    )


def _types() -> list[object]:
    handle, data, _ = heap_handle("1.20.5/values-hashmap-native")
    schemas = [decode_keyed_header(data[: handle.offsets[0]], 128).schema]
    schemas += [sample.schema for fixture in (*CANONICAL, *SQL) for _, sample in canonical_samples(fixture)]
    types = {str(t): t for s in schemas for d in s.states for t in (s.key_type, d.value_type, d.namespace_type)}
    return list(types.values())


def _serializer_snapshots() -> Target:
    seeds: dict[str, bytes] = {}
    for type_ in _types():
        try:
            seeds[str(type_)] = encode_serializer_snapshot(type_)
        except StatelibError:
            continue

    def read(_: str, data: bytes) -> None:
        types = decode_serializer_snapshot(Reader(data, "serializer snapshot"))
        str(types)
        codec_of(types)

    return Target(seeds, read)


def _type_texts() -> Target:
    """Return the target of type texts, whose seeds are the types of manifests."""
    seeds = {str(type_): str(type_).encode() for type_ in _types()}

    def read(_: str, data: bytes) -> None:
        codec_of(parse_type(data.decode("utf-8", "replace")))

    return Target(seeds, read)


def own_checkpoint() -> bytes:
    """Return a ``_metadata`` as statelib writes it."""
    return Path(__file__).with_name("own_metadata.bin").read_bytes()


def _manifest_files() -> Target:
    return Target({"own": own_checkpoint()}, lambda _, data: read_checkpoint_file(data, "chk-1/_metadata"))


def _manifest_bodies() -> Target:
    """Return the target of the JSON alone, with a right checksum: a seed is the body, a damaged one is put back into
    a file."""
    metadata, manifest = read_checkpoint_file(own_checkpoint())
    assert manifest is not None
    flink = encode_metadata(metadata)
    body = json.dumps(manifest_to_json(manifest)).encode()

    def read(_: str, data: bytes) -> None:
        read_checkpoint_file(with_body(flink, data), "chk-1/_metadata")

    return Target({"body": body}, read)


def with_body(flink: bytes, body: bytes) -> bytes:
    """Return a complete ``_metadata`` whose manifest has this body, with right checksums."""
    writer = Writer()
    writer.put(flink + b"STATELIB")
    writer.u32(1)
    writer.u32(len(body))
    writer.put(body)
    writer.u32(crc32c(writer.getvalue()))
    writer.u32(32 + len(body))
    writer.put(b"BILETATS")
    return writer.getvalue()


ODD: tuple[object, ...] = (
    None, True, -1, 0, 2**31, 2**63, 2**64, -(2**63), 10**40, 1e308, float("nan"), float("inf"), "", "a" * 70000, "\0",
    "\ud800", "../../etc", "NaN", [], {}, [[[]]], [0, 2**40], [5, 3], ["x"], {"x": 1}, "row<" * 500, "list<long>",
)  # fmt: skip


def _manifest_values() -> Target:
    """Return the target of well-formed JSON with a wrong value; eight bytes of a seed select the value and its
    place."""
    metadata, manifest = read_checkpoint_file(own_checkpoint())
    assert manifest is not None
    flink = encode_metadata(metadata)
    good = json.dumps(manifest_to_json(manifest))

    def read(_: str, choice: bytes) -> None:
        random, content = Random(choice), json.loads(good)
        for _i in range(random.choice((1, 1, 2))):
            _replace_one(random, content)
        read_checkpoint_file(with_body(flink, json.dumps(content).encode()), "chk-1/_metadata")

    return Target({"choice": bytes(range(200))}, read, whole=False)


def _replace_one(random: Random, content: Any) -> None:
    at = content
    while True:
        places = list(at) if isinstance(at, dict) else list(range(len(at))) if isinstance(at, list) else []
        if not places:
            return
        place = random.choice(places)
        if isinstance(at[place], dict | list) and at[place] and random.random() < 0.8:
            at = at[place]
            continue
        if random.random() < 0.2:
            del at[place]
        else:
            at[place] = deepcopy(random.choice(ODD))
        return


def _references() -> Target:
    seeds = {
        place: encode_reference(StorageReference(place))
        for place in ("file:///srv/state/flights/chk-4", "s3://bucket/state/chk-17", "file:///srv/stäte/日/chk-1")
    }
    return Target(seeds, lambda _, data: decode_reference(data))


def _local_index() -> Target:
    """Return the target of the index of local copies. Damage is a ValueError here, and then the copies are not used:
    no other error may be raised."""
    directory = own_directory()
    write_index(directory, {f"file:///state/{i}": LocalCopy(f"a-{i}", i, 7 * i) for i in range(4)})
    path = directory / INDEX_NAME

    def read(_: str, data: bytes) -> None:
        path.write_bytes(data)
        try:
            read_index(directory)
        except ValueError:
            return

    return Target({"index": path.read_bytes()}, read)


DESCRIBING: Mapping[str, Callable[[], Target]] = {
    "metadata": _metadata,
    "java-objects": _java_objects,
    "serializer-snapshots": _serializer_snapshots,
    "type-texts": _type_texts,
    "manifest-files": _manifest_files,
    "manifest-bodies": _manifest_bodies,
    "manifest-values": _manifest_values,
    "references": _references,
    "local-index": _local_index,
}
