"""Blocks of RocksDB's tables whose checksums match, but whose bytes cannot be what they say, are refused by name."""

import cramjam
import pytest

from statelib.errors import CorruptStateError
from statelib.formats.sst.stored_blocks import CRC32C, PADDING, XXH3, XXH64, StoredBlock, block_checksum, contents_of

TEXT = b"what is stored " * 40


def stored(body: bytes, kind: int, checksum: int, offset: int = 0) -> StoredBlock:
    checked = body + bytes([kind])
    return offset, len(body), memoryview(checked + block_checksum(checksum, checked).to_bytes(4, "little"))


def snappy(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(content))


@pytest.mark.parametrize("checksum", [CRC32C, XXH64, XXH3])
def test_contents_are_those_of_all_blocks_in_order(checksum: int) -> None:
    """The most that Snappy can save is saved for the zeros."""
    contents = [TEXT, b"", bytes(1 << 20), b"abc"]
    blocks = [stored(content if n % 2 else snappy(content), 1 - n % 2, checksum) for n, content in enumerate(contents)]
    blocks += [stored(snappy(b""), 1, checksum), stored(TEXT, 0, checksum)]
    result = contents_of(blocks, checksum, "000007.sst")
    assert result.lengths == [*map(len, contents), 0, len(TEXT)]
    assert result.data.tobytes() == b"".join(contents) + TEXT + bytes(PADDING)


@pytest.mark.parametrize(
    ("body", "kind", "problem"),
    [
        (TEXT, 4, "expected it plain or by Snappy, found 4"),
        (b"\xff\xff\xff\xff\x0f" + snappy(TEXT)[2:], 1, "bytes of content, found 4294967295"),
        (bytes([snappy(TEXT)[0] + 1]) + snappy(TEXT)[1:], 1, "expected 601 decompressed bytes but got 600"),
        (bytes([snappy(TEXT)[0] - 1]) + snappy(TEXT)[1:], 1, "corrupt input"),
        (snappy(TEXT)[:-1], 1, "corrupt input"),
        (snappy(TEXT) + b"\0", 1, "corrupt input"),
        (b"", 1, "expected a number"),
        (b"\xff" * 12, 1, "expected a number"),
    ],
)
def test_a_block_with_a_false_claim_about_its_content_is_refused(body: bytes, kind: int, problem: str) -> None:
    good = stored(snappy(TEXT), 1, XXH64)
    with pytest.raises(CorruptStateError, match=problem) as raised:
        contents_of([good, stored(body, kind, XXH64, offset=4711)], XXH64, "000007.sst")
    assert raised.value.kind == "corrupt-rocksdb"
    assert str(raised.value).startswith("RocksDB's table")


def test_a_cut_block_is_named_by_its_place() -> None:
    _, length, data = stored(TEXT, 0, XXH64)
    for end in range(len(data)):
        with pytest.raises(CorruptStateError, match="expected a block of 600 bytes at byte 4711"):
            contents_of([(4711, length, data[:end])], XXH64, "000007.sst")
