"""The bytes of ``_metadata`` and of streams with the names and values of their fields.

The parsers that read state do it, on a reader that remembers what they read; so damage shows where they stop.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from statelib.errors import CorruptStateError, StatelibError
from statelib.formats.changelog.change_set import decode_stream, read_groups
from statelib.formats.keyed.header import read_keyed_header
from statelib.formats.manifest.trailer import FOOT_BYTES, MANIFEST_END, SIGNATURE, read_body, read_foot
from statelib.formats.metadata.metadata_file import read_metadata
from statelib.formats.operator_state import read_operator_header
from statelib.formats.text.annotated_groups import EntryReader
from statelib.model.handles import KeyGroupsSavepointStateHandle, KeyGroupsStateHandle, OperatorStreamStateHandle
from statelib.wire.checksum import crc32c
from statelib.wire.reader import Reader
from statelib.wire.recording import ReadField, RecordingReader

Parse = Callable[[RecordingReader], object]


@dataclass(frozen=True)
class Annotated:
    """Bytes that one parser went through. ``base``: the file's offset of the first of them, to which all other offsets
    are relative. ``end``: how far it came. ``problem``: why it stopped there; '' where it did not have to."""

    title: str
    data: memoryview = field(repr=False)
    base: int
    fields: tuple[ReadField, ...]
    end: int
    problem: str = ""


def annotate(title: str, data: bytes | memoryview, parse: Parse, what: str, base: int = 0) -> Annotated:
    """What ``parse`` reads of the data; its error is part of the result."""
    reader, problem = RecordingReader(data, what), ""
    try:
        parse(reader)
    except StatelibError as error:
        problem = error.message
    return Annotated(title, memoryview(data).cast("B"), base, tuple(reader.fields), reader.offset, problem)


def annotate_metadata(data: bytes | memoryview, what: str = "_metadata") -> tuple[Annotated, ...]:
    """Flink's part and statelib's manifest, which is found from its end where Flink's part is damaged."""
    found = annotate("_metadata", data, _parse_metadata, what)
    view = found.data
    if not found.problem or found.end > len(view) - FOOT_BYTES or bytes(view[-len(MANIFEST_END) :]) != MANIFEST_END:
        return (found,)
    _, size = read_foot(Reader(view[-FOOT_BYTES:], what))
    start = len(view) - size
    if start < found.end or (found.fields and found.fields[-1].parts[:1] == (_MANIFEST,)):
        return (found,)
    return found, annotate(_MANIFEST, view[start:], _parse_manifest, what, base=start)


def annotate_keyed(
    data: bytes | memoryview,
    handle: KeyGroupsSavepointStateHandle | KeyGroupsStateHandle,
    max_parallelism: int,
    what: str,
    base: int = 0,
    *,
    limit: int = 0,
) -> tuple[Annotated, ...]:
    """A canonical or a heap stream: its header, and where each key group lies.

    ``limit``: so many entries are taken apart; of compressed key groups, each in a part of its own, counted from
    where it is decompressed."""
    canonical = isinstance(handle, KeyGroupsSavepointStateHandle)
    packed: list[tuple[str, memoryview]] = []
    found: list[EntryReader] = []

    def parse(reader: RecordingReader) -> None:
        with reader.part("header"):
            header = read_keyed_header(reader, max_parallelism)
        entries = EntryReader(header, canonical, limit)
        found.append(entries)

        def group(name: str, end: int) -> None:
            if header.compressed or not entries.left:
                packed.append((name, reader.take(end - reader.offset, name)))
                return
            with reader.part(name):
                entries.group(reader, end)

        first = handle.key_group_range.start
        parts = [(offset, f"key group {first + i}") for i, offset in enumerate(handle.offsets) if offset]
        _take_parts(reader, parts, group)

    kind = "canonical" if canonical else "heap"
    whole = annotate(f"{kind} stream, key groups {handle.key_group_range}", data, parse, what, base)
    return whole, *(_decompressed(found[0], name, part, what) for name, part in packed if found[0].left)


def _decompressed(entries: EntryReader, name: str, data: memoryview, what: str) -> Annotated:
    title = f"{name}, decompressed"
    try:
        content = entries.decompressed(data, what)
    except CorruptStateError as error:
        return Annotated(title, data, 0, (), 0, error.message)
    return annotate(title, content, entries.content, what)


def annotate_meta(data: bytes | memoryview, max_parallelism: int, what: str, base: int = 0) -> tuple[Annotated, ...]:
    """The stream beside RocksDB's files, which is a header and nothing else."""
    return (annotate("RocksDB meta stream", data, lambda r: read_keyed_header(r, max_parallelism), what, base),)


def annotate_operator_state(
    data: bytes | memoryview, handle: OperatorStreamStateHandle, what: str, base: int = 0
) -> tuple[Annotated, ...]:
    """The header, and where each element lies."""

    def parse(reader: Reader) -> None:
        with reader.part("header"):
            read_operator_header(reader)
        parts = [
            (offset, f"state {name!r}, element {i}")
            for name, _, offsets in handle.states
            for i, offset in enumerate(offsets)
        ]
        _take_parts(reader, parts)

    return (annotate("operator state stream", data, parse, what, base),)


def annotate_change_log(data: bytes | memoryview, what: str, base: int = 0) -> tuple[Annotated, ...]:
    """The change sets of a stream; of a compressed one, what they are when decompressed, counted from there."""
    raw = memoryview(data).cast("B")
    flag = annotate("change log", raw, _parse_flag, what, base)
    if flag.problem:
        return (flag,)
    try:
        sets = decode_stream(raw, what)
    except CorruptStateError as error:
        return (Annotated(flag.title, raw, base, flag.fields, 1, error.message),)
    compressed = bool(flag.fields[0].value)
    title = "change sets, decompressed" if compressed else "change sets"
    content = sets.data

    def parse(reader: Reader) -> None:
        number = 0
        while reader.remaining:
            with reader.part(f"set {number}"):
                _exhaust(read_groups(reader, content, 0))
            number += 1

    return flag, annotate(title, content, parse, what, 0 if compressed else base + 1)


def raw_bytes(title: str, data: bytes | memoryview, base: int = 0) -> tuple[Annotated, ...]:
    """Bytes that statelib has no parser for."""
    return (annotate(title, data, lambda reader: reader.take(reader.remaining, "content"), title, base),)


_MANIFEST = "manifest"


def _parse_metadata(reader: Reader) -> None:
    read_metadata(reader)
    if reader.remaining == len(SIGNATURE):  # shorter than any manifest
        _check_signature(reader)
    elif reader.remaining:
        with reader.part(_MANIFEST):
            _parse_manifest(reader)
        _check_crc(reader)


def _check_signature(reader: Reader) -> None:
    found = bytes(reader.take(len(SIGNATURE), "signature"))
    if found != SIGNATURE:
        raise CorruptStateError(
            f"{reader.what}: ends with {found!r}, expected {SIGNATURE!r}, a manifest or nothing",
            kind="corrupt-metadata",
        )


def _parse_manifest(reader: Reader) -> None:
    if reader.remaining < FOOT_BYTES:
        raise CorruptStateError(f"{reader.what}: {reader.remaining} bytes cannot hold a manifest", kind="truncated")
    read_body(reader, reader.remaining - FOOT_BYTES)
    read_foot(reader)


def _check_crc(reader: Reader) -> None:
    """Of the whole file, once all of it was read."""
    whole = reader.since(0)
    stored, found = int.from_bytes(whole[-FOOT_BYTES : 4 - FOOT_BYTES], "big"), crc32c(whole[:-FOOT_BYTES])
    if stored != found:
        raise CorruptStateError(
            f"{reader.what}: CRC-32C is {found:08x}, expected {stored:08x}", kind="corrupt-metadata"
        )


def _take_parts(
    reader: Reader, parts: Sequence[tuple[int, str]], read: Callable[[str, int], object] | None = None
) -> None:
    """The rest of a stream, cut where its handle says that something begins; ``read`` goes through one part, up to
    its end."""
    end_of_stream = (reader.offset + reader.remaining, "")
    for (offset, name), (end, _) in pairwise([*sorted(parts), end_of_stream]):
        if offset < reader.offset:
            raise CorruptStateError(
                f"{reader.what}: {name} at offset {offset}, expected {reader.offset} or more", kind="bad-offsets"
            )
        if offset > reader.offset:
            reader.take(offset - reader.offset, "between")
        if read is None:
            reader.take(end - offset, name)
        else:
            read(name, end)


def _parse_flag(reader: Reader) -> None:
    if reader.u8("compressed") > 1:
        raise CorruptStateError(f"{reader.what}: expected 0 or 1 in the first byte", kind="corrupt-changelog")


def _exhaust(groups: Iterator[object]) -> None:
    for _ in groups:
        pass
