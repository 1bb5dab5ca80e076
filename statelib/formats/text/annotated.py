"""The bytes of ``_metadata`` and of streams, with the names and values of their fields.

The parsers that read state produce them, with a reader that records each field. If a parser stops at a damaged byte,
the fields before it are shown, and so is the error.
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
from statelib.formats.text.annotated_groups import AnnotatedEntryReader
from statelib.model.handles import KeyGroupsSavepointStateHandle, KeyGroupsStateHandle, OperatorStreamStateHandle
from statelib.wire.checksum import crc32c
from statelib.wire.reader import Reader
from statelib.wire.recording import ReadField, RecordingReader

Parse = Callable[[RecordingReader], object]


@dataclass(frozen=True)
class Annotated:
    """The bytes that one parser read, with their fields.

    ``base``: the offset in the file of the first byte; all other offsets are relative to it. ``end``: the offset where
    the parser ended. ``problem``: the error that stopped it there; '' if there was none.
    """

    title: str
    data: memoryview = field(repr=False)
    base: int
    fields: tuple[ReadField, ...]
    end: int
    problem: str = ""


def annotate(title: str, data: bytes | memoryview, parse: Parse, what: str, base: int = 0) -> Annotated:
    """Return the fields that ``parse`` reads from ``data``. A parser's error is part of the result; it is not
    raised."""
    reader, problem = RecordingReader(data, what), ""
    try:
        parse(reader)
    except StatelibError as error:
        problem = error.message
    return Annotated(title, memoryview(data).cast("B"), base, tuple(reader.fields), reader.offset, problem)


def annotate_metadata(data: bytes | memoryview, what: str = "_metadata") -> tuple[Annotated, ...]:
    """Return Flink's part of ``_metadata`` and statelib's manifest.

    If Flink's part is damaged, the manifest is located from the end of the file and returned as a second part.
    """
    metadata = annotate("_metadata", data, _parse_metadata, what)
    view = metadata.data
    if (
        not metadata.problem
        or metadata.end > len(view) - FOOT_BYTES
        or bytes(view[-len(MANIFEST_END) :]) != MANIFEST_END
    ):
        return (metadata,)
    _, size = read_foot(Reader(view[-FOOT_BYTES:], what))
    start = len(view) - size
    if start < metadata.end or (metadata.fields and metadata.fields[-1].parts[:1] == (_MANIFEST,)):
        return (metadata,)
    return metadata, annotate(_MANIFEST, view[start:], _parse_manifest, what, base=start)


def annotate_keyed(
    data: bytes | memoryview,
    handle: KeyGroupsSavepointStateHandle | KeyGroupsStateHandle,
    max_parallelism: int,
    what: str,
    base: int = 0,
    *,
    limit: int = 0,
) -> tuple[Annotated, ...]:
    """Return the header of a canonical or heap stream, and the position of each key group.

    ``limit``: the number of entries that are split into fields. Each compressed key group with such entries is a part
    of its own, whose offsets count decompressed bytes.
    """
    canonical = isinstance(handle, KeyGroupsSavepointStateHandle)
    undivided: list[tuple[str, memoryview]] = []
    entry_readers: list[AnnotatedEntryReader] = []

    def parse(reader: RecordingReader) -> None:
        with reader.part("header"):
            header = read_keyed_header(reader, max_parallelism)
        entry_reader = AnnotatedEntryReader(header, canonical, limit)
        entry_readers.append(entry_reader)

        def group(name: str, end: int) -> None:
            if header.compressed or not entry_reader.left:
                undivided.append((name, reader.take(end - reader.offset, name)))
                return
            with reader.part(name):
                entry_reader.group(reader, end)

        first = handle.key_group_range.start
        parts = [(offset, f"key group {first + i}") for i, offset in enumerate(handle.offsets) if offset]
        _take_parts(reader, parts, group)

    kind = "canonical" if canonical else "heap"
    whole = annotate(f"{kind} stream, key groups {handle.key_group_range}", data, parse, what, base)
    return whole, *(
        _decompressed(entry_readers[0], name, part, what) for name, part in undivided if entry_readers[0].left
    )


def _decompressed(entries: AnnotatedEntryReader, name: str, data: memoryview, what: str) -> Annotated:
    title = f"{name}, decompressed"
    try:
        content = entries.decompressed(data, what)
    except CorruptStateError as error:
        return Annotated(title, data, 0, (), 0, error.message)
    return annotate(title, content, entries.content, what)


def annotate_meta(data: bytes | memoryview, max_parallelism: int, what: str, base: int = 0) -> tuple[Annotated, ...]:
    """Return the fields of the meta stream beside RocksDB's files, which holds only a header."""
    return (annotate("RocksDB meta stream", data, lambda r: read_keyed_header(r, max_parallelism), what, base),)


def annotate_operator_state(
    data: bytes | memoryview, handle: OperatorStreamStateHandle, what: str, base: int = 0
) -> tuple[Annotated, ...]:
    """Return the header of an operator state stream, and the position of each element."""

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
    """Return the compression flag of a change log stream, and its change sets.

    The offsets of compressed change sets count decompressed bytes.
    """
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
    """Return bytes that statelib has no parser for, as one field."""
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
    signature = bytes(reader.take(len(SIGNATURE), "signature"))
    if signature != SIGNATURE:
        raise CorruptStateError(
            f"{reader.what}: ends with {signature!r}, expected {SIGNATURE!r}, a manifest or nothing",
            kind="corrupt-metadata",
        )


def _parse_manifest(reader: Reader) -> None:
    if reader.remaining < FOOT_BYTES:
        raise CorruptStateError(f"{reader.what}: {reader.remaining} bytes cannot hold a manifest", kind="truncated")
    read_body(reader, reader.remaining - FOOT_BYTES)
    read_foot(reader)


def _check_crc(reader: Reader) -> None:
    """Raise CorruptStateError (``corrupt-metadata``) unless the file matches its CRC-32C. All of it must have been
    read."""
    file_bytes = reader.since(0)
    stored, computed = int.from_bytes(file_bytes[-FOOT_BYTES : 4 - FOOT_BYTES], "big"), crc32c(file_bytes[:-FOOT_BYTES])
    if stored != computed:
        raise CorruptStateError(
            f"{reader.what}: CRC-32C is {computed:08x}, expected {stored:08x}", kind="corrupt-metadata"
        )


def _take_parts(
    reader: Reader, parts: Sequence[tuple[int, str]], read_part: Callable[[str, int], object] | None = None
) -> None:
    """Read the rest of a stream as parts: each begins at the offset that the stream's handle gives.

    ``parts``: (offset, name). ``read_part`` reads one part, given its name and its end; by default a part is one field.
    Raise CorruptStateError (``bad-offsets``) if two parts overlap.
    """
    end_of_stream = (reader.offset + reader.remaining, "")
    for (offset, name), (end, _) in pairwise([*sorted(parts), end_of_stream]):
        if offset < reader.offset:
            raise CorruptStateError(
                f"{reader.what}: {name} at offset {offset}, expected {reader.offset} or more", kind="bad-offsets"
            )
        if offset > reader.offset:
            reader.take(offset - reader.offset, "between")
        if read_part is None:
            reader.take(end - offset, name)
        else:
            read_part(name, end)


def _parse_flag(reader: Reader) -> None:
    if reader.u8("compressed") > 1:
        raise CorruptStateError(f"{reader.what}: expected 0 or 1 in the first byte", kind="corrupt-changelog")


def _exhaust(groups: Iterator[object]) -> None:
    for _ in groups:
        pass
