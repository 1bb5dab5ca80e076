"""Checksums: CRC-32C (Castagnoli), which guards every file and ``_metadata``, and hashes that identify the content of
files."""

import google_crc32c
import numpy as np
import numpy.typing as npt
import xxhash


def crc32c(data: bytes | bytearray | memoryview | npt.NDArray[np.uint8], value: int = 0) -> int:
    """Return the CRC-32C of ``data`` as an unsigned 32-bit number; ``value`` is the CRC-32C of the bytes before
    ``data``.

    Law: ``crc32c(b, crc32c(a)) == crc32c(a + b)``; ``crc32c(b"123456789") == 0xE3069283``.
    """
    if (
        isinstance(data, memoryview)
        and isinstance(data.obj, bytes)
        and data.contiguous
        and data.nbytes == len(data.obj)
    ):
        data = data.obj  # not copied: a copy takes half as long as the checksum
    return int(google_crc32c.extend(value, data if isinstance(data, bytes) else bytes(data)))


def xxh3(data: bytes | memoryview) -> int:
    """Return the XXH3-64 of ``data`` as an unsigned number."""
    return int(xxhash.xxh3_64_intdigest(data))


def xxh64(data: bytes | memoryview) -> int:
    """Return the XXH64 of ``data`` with seed 0 as an unsigned number."""
    return int(xxhash.xxh64_intdigest(data))


class ContentHash:
    """The CRC-32C and XXH3-64 of a stream of bytes, computed in one pass.

    Two files are taken for the same if both values agree. The hashes are independent: a difference that one of them
    misses, the other detects.
    """

    def __init__(self) -> None:
        self.crc32c = 0
        self._xxh3 = xxhash.xxh3_64()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Add the next bytes of the stream."""
        self.crc32c = crc32c(data, self.crc32c)
        self._xxh3.update(data)

    @property
    def xxh3(self) -> int:
        """The XXH3-64 of all bytes so far, as an unsigned number."""
        return self._xxh3.intdigest()


def content_hash(data: bytes | bytearray | memoryview) -> ContentHash:
    """Return the hash of ``data``."""
    result = ContentHash()
    result.update(data)
    return result
