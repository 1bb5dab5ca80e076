"""CRC-32C (Castagnoli), the checksum kept of every file and of ``_metadata``, and the content identity of files."""

import google_crc32c
import numpy as np
import numpy.typing as npt
import xxhash


def crc32c(data: bytes | bytearray | memoryview | npt.NDArray[np.uint8], value: int = 0) -> int:
    """CRC-32C of ``data`` as an unsigned 32-bit number; ``value`` is the one of the bytes before it.

    Law: ``crc32c(b, crc32c(a)) == crc32c(a + b)``; ``crc32c(b"123456789") == 0xE3069283``.
    """
    if (
        isinstance(data, memoryview)
        and isinstance(data.obj, bytes)
        and data.contiguous
        and data.nbytes == len(data.obj)
    ):
        data = data.obj  # all of it: not copied, which would take half as long as the checksum itself
    return int(google_crc32c.extend(value, data if isinstance(data, bytes) else bytes(data)))


def xxh3(data: bytes | memoryview) -> int:
    """XXH3-64 of ``data`` as an unsigned number."""
    return int(xxhash.xxh3_64_intdigest(data))


def xxh64(data: bytes | memoryview) -> int:
    """XXH64 of ``data``, seed 0, as an unsigned number."""
    return int(xxhash.xxh64_intdigest(data))


class ContentHash:
    """CRC-32C and XXH3-64 of a stream of bytes, in one pass. Together they tell whether two files are the same: they
    are independent, so that what one misses, the other finds."""

    def __init__(self) -> None:
        self.crc32c = 0
        self._xxh3 = xxhash.xxh3_64()

    def update(self, data: bytes | bytearray | memoryview) -> None:
        self.crc32c = crc32c(data, self.crc32c)
        self._xxh3.update(data)

    @property
    def xxh3(self) -> int:
        """Unsigned, of all bytes so far."""
        return self._xxh3.intdigest()


def content_hash(data: bytes | bytearray | memoryview) -> ContentHash:
    """Of bytes that are at hand."""
    found = ContentHash()
    found.update(data)
    return found
