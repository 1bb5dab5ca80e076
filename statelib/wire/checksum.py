"""CRC-32C (Castagnoli), the checksum kept of every file and of ``_metadata``."""

import google_crc32c
import numpy as np
import numpy.typing as npt


def crc32c(data: bytes | bytearray | memoryview | npt.NDArray[np.uint8], value: int = 0) -> int:
    """CRC-32C of ``data`` as an unsigned 32-bit number; ``value`` is the one of the bytes before it.

    Law: ``crc32c(b, crc32c(a)) == crc32c(a + b)``; ``crc32c(b"123456789") == 0xE3069283``.
    """
    return int(google_crc32c.extend(value, data if isinstance(data, bytes) else bytes(data)))
