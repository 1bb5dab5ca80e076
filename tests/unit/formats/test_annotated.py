"""Annotated bytes: every byte that a parser reads is a named field, and damage shows where it stops."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.errors import CorruptStateError
from statelib.formats.metadata.metadata_file import decode_metadata
from statelib.formats.text.annotated import Annotated, annotate, annotate_change_log, annotate_metadata
from statelib.model.handles import ByteStreamStateHandle, stream_handles
from statelib.savepoints.hexdump import dump_file, dump_metadata
from statelib.wire.reader import Reader
from statelib.wire.recording import RecordingReader
from statelib.wire.writer import Writer

FLINK = Path(__file__).parents[2] / "golden" / "flink"
FILES = sorted(FLINK.rglob("_metadata"))
KINDS = next(FLINK.glob("1.20.5/kinds-hashmap-canonical-p1/savepoint-*/_metadata"))


def tiled(part: Annotated) -> bool:
    """Return whether the fields follow each other without gaps, from the first byte to the place where the parser
    stopped."""
    bounds = [0, *(field.offset + field.size_bytes for field in part.fields)]
    starts = [*(field.offset for field in part.fields), part.end]
    return bounds == starts


def test_a_recording_reader_reads_the_same_values_and_records_them() -> None:
    writer = Writer()
    writer.utf("Grüße")
    writer.i32(2)
    writer.put(b"ab")
    reader = RecordingReader(writer.getvalue(), "test")
    assert reader.utf("text") == "Grüße"
    assert reader.peek() == 0
    with reader.part("outer"), reader.part("inner"):
        assert bytes(reader.take(reader.count(name="length"), "content")) == b"ab"
    assert [(f.offset, f.size_bytes, f.verb, f.name, f.parts) for f in reader.fields] == [
        (0, 9, "utf", "text", ()),
        (9, 4, "i32", "length", ("outer", "inner")),
        (13, 2, "bytes", "content", ("outer", "inner")),
    ]
    with pytest.raises(CorruptStateError, match="offset 15"):
        reader.u8("more")
    assert len(reader.fields) == 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.parent.name)
def test_every_byte_of_flinks_metadata_is_a_named_field(path: Path) -> None:
    data = path.read_bytes()
    (result,) = annotate_metadata(data)
    assert (result.problem, result.end) == ("", len(data))
    assert tiled(result)
    assert all(field.name for field in result.fields)
    metadata, _ = decode_metadata(data)
    ids = [bytes(f.value) for f in result.fields if f.name == "operator id"]
    assert ids == [operator.operator_id for operator in metadata.operators]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.parent.name)
def test_every_inline_stream_of_flinks_metadata_is_annotated_to_its_end(path: Path) -> None:
    for name in inline_streams(path):
        for part in dump_file(str(path.parent), name).parts:
            assert (part.problem, part.end) == ("", 1 if part.title == "change log" else len(part.data))
            assert tiled(part)


def inline_streams(path: Path) -> Sequence[str]:
    metadata, _ = decode_metadata(path.read_bytes())
    handles = (h for o in metadata.operators for _, s in o.subtasks for h in (s.keyed, s.operator) if h)
    streams = (stream for handle in handles for stream in stream_handles(handle))
    return [stream.name for stream in streams if isinstance(stream, ByteStreamStateHandle)]


def test_the_fields_have_the_values_and_parts_of_the_handles() -> None:
    (result,) = annotate_metadata(KINDS.read_bytes())
    fields = {(f.parts, f.name): (f.offset, f.value) for f in result.fields}
    assert fields[(), "version"] == (4, 4)
    assert fields[("operator 0",), "max parallelism"] == (0x2C, 128)
    assert fields[("operator 0", "subtask 0", "keyed state"), "content"][0] == 0x4CD


@given(cut=st.integers(0, 22_077))
def test_a_truncated_file_is_annotated_up_to_its_end(cut: int) -> None:
    data = KINDS.read_bytes()
    whole, result = annotate_metadata(data)[0], annotate_metadata(data[:cut])[0]
    assert result.problem
    assert tiled(result)
    assert [f.offset for f in whole.fields if f.offset + f.size_bytes <= result.end] == [
        f.offset for f in result.fields
    ]
    assert cut - result.end < max(f.size_bytes for f in whole.fields) + 4


@given(at=st.integers(0, 22_818), bit=st.integers(0, 7))
def test_a_flipped_bit_is_reported_as_a_problem_and_not_raised(at: int, bit: int) -> None:
    data = bytearray(KINDS.read_bytes())
    data[at] ^= 1 << bit
    for part in annotate_metadata(bytes(data)):
        assert tiled(part)
        assert part.problem or part.end == len(part.data)


@given(data=st.binary(max_size=80))
def test_any_bytes_can_be_annotated_as_a_change_log(data: bytes) -> None:
    for part in annotate_change_log(data, "log"):
        assert tiled(part)


def test_the_problem_names_the_offset_at_which_the_parser_stopped() -> None:
    def parse(reader: Reader) -> None:
        with reader.part("head"):
            reader.i32("number")
            reader.utf("text")

    result = annotate("test", b"\0\0\0\7\0\5ab", parse, "test", base=100)
    assert (result.end, [(f.parts, f.name) for f in result.fields]) == (4, [(("head",), "number")])
    assert "expected 5 bytes at offset 6" in result.problem


def test_metadata_can_be_dumped_by_the_path_of_its_directory() -> None:
    dump = dump_metadata(str(KINDS.parent))
    assert (dump.path, dump.size_bytes, len(dump.parts)) == (str(KINDS), 22_819, 1)
    assert all(a.offset <= b.offset for a, b in pairwise(dump.parts[0].fields))
