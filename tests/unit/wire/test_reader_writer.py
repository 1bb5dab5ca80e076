"""Reader and Writer are inverses, big-endian, and bounded."""

import numpy as np
import pytest

from statelib.errors import CorruptStateError, InvalidRequestError, UnsupportedError
from statelib.wire.checksum import crc32c
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

VERBS = [
    ("i8", -128, "80"), ("u8", 255, "ff"), ("i16", -2, "fffe"), ("u16", 65535, "ffff"), ("i32", -(2**31), "80000000"),
    ("u32", 2**32 - 1, "ffffffff"), ("i64", -(2**63), "8000000000000000"), ("u64", 2**64 - 1, "ffffffffffffffff"),
    ("f32", 1.5, "3fc00000"), ("f64", -2.0, "c000000000000000"), ("bool", True, "01"), ("bool", False, "00"),
    ("utf", "", "0000"), ("utf", "a\0", "000361c080"), ("utf", "é日", "0005c3a9e697a5"),
    ("utf", "😀", "0006eda0bdedb880"),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "value", "expected"), VERBS)
def test_each_method_writes_these_bytes_and_reads_them_back(verb: str, value: object, expected: str) -> None:
    writer = Writer()
    getattr(writer, verb)(value)
    assert writer.getvalue().hex() == expected
    reader = Reader(writer.getvalue(), "test")
    assert getattr(reader, verb)() == value
    assert reader.remaining == 0


@pytest.mark.parametrize(("verb", "value", "expected"), VERBS)
def test_a_missing_byte_is_an_error_that_names_the_source(verb: str, value: object, expected: str) -> None:
    reader = Reader(bytes.fromhex(expected)[:-1], "chk-7/_metadata")
    with pytest.raises(CorruptStateError, match="chk-7/_metadata") as caught:
        getattr(reader, verb)()
    assert caught.value.kind == "truncated"


def test_a_name_with_half_a_surrogate_pair_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"test at offset 0: half a surrogate pair") as caught:
        Reader(bytes.fromhex("0003eda0bd"), "test").utf()
    assert caught.value.kind == "half-surrogate"


@pytest.mark.parametrize("size", [-1, 4])
def test_taking_beyond_the_end_or_backwards_does_not_move_the_reader(size: int) -> None:
    reader = Reader(b"abc", "test")
    with pytest.raises(CorruptStateError):
        reader.take(size)
    assert reader.offset == 0
    assert bytes(reader.take(3)) == b"abc"


@pytest.mark.parametrize(
    ("raw", "size", "good"),
    [("0000000161", 1, True), ("0000000261", 1, False), ("ffffffff", 1, False), ("000000016161", 3, False)],
)
def test_a_count_is_compared_with_the_remaining_bytes(raw: str, size: int, good: bool) -> None:
    reader = Reader(bytes.fromhex(raw), "test")
    if good:
        assert reader.count(size) == 1
        return
    with pytest.raises(CorruptStateError) as caught:
        reader.count(size)
    assert caught.value.kind == "bad-count"


def test_invalid_modified_utf8_is_refused() -> None:
    with pytest.raises(CorruptStateError) as caught:
        Reader(b"\x00\x01\xff", "test").utf()
    assert caught.value.kind == "bad-utf"


@pytest.mark.parametrize(
    ("verb", "value"), [("u8", 256), ("i8", 128), ("u16", -1), ("i16", 32768), ("i32", 2**31), ("i64", 2**63)]
)
def test_numbers_out_of_range_are_refused(verb: str, value: int) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        getattr(Writer(), verb)(value)
    assert caught.value.kind == "out-of-range"


def test_a_text_has_at_most_65535_bytes() -> None:
    writer = Writer()
    writer.utf("x" * 65535)
    assert writer.offset == 65537
    with pytest.raises(InvalidRequestError):
        writer.utf("x" * 65534 + "é")


def test_crc32c_has_the_standard_check_value_and_can_be_continued() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(memoryview(b"456789"), crc32c(b"123")) == 0xE3069283
    assert crc32c(memoryview(b"0123456789")[1:]) == crc32c(memoryview(b"987654321")[::-1]) == 0xE3069283
    assert crc32c(np.frombuffer(b"123456789", np.uint8)) == 0xE3069283
    assert crc32c(b"") == 0
