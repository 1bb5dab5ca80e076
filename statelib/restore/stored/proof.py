"""Comparison of streams that are read range by range with their recorded checksums.

Files that are copied or read as a whole are checked by their reader. If only some key groups of a stream are read,
counts and digests are the proof instead, and damage in other parts of the stream does not matter.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from statelib.errors import RetryableError, StatelibError
from statelib.model.handles import StreamStateHandle
from statelib.storage.ports.views import StateReader
from statelib.wire.checksum import crc32c

_BLOCK_BYTES = 1 << 20


class ProvenStream:
    """A stream that is read range by range, as a function of (start, stop).

    If all ranges are read in order, the stream is compared with its checksum before the last range is returned. Raise
    CorruptStateError (``checksum-mismatch``) if they differ. ``is_proved``: whether it was compared."""

    def __init__(self, reader: StateReader, stream: StreamStateHandle) -> None:
        self._reader, self._stream = reader, stream
        self._end = self._crc = 0
        self.is_proved = False

    def __call__(self, start: int, stop: int) -> memoryview:
        data = self._reader.read_range(self._stream, start, stop)
        if start == self._end:
            self._crc, self._end = crc32c(data, self._crc), stop
            if stop == self._stream.size_bytes:
                self._reader.check_crc(self._stream, self._crc)
                self.is_proved = True
        return data

    def blocks(self) -> Iterator[memoryview]:
        """Yield the whole stream in blocks."""
        for start in range(0, self._stream.size_bytes, _BLOCK_BYTES):
            yield self(start, min(start + _BLOCK_BYTES, self._stream.size_bytes))


def prove(reader: StateReader, streams: Iterable[StreamStateHandle]) -> None:
    """Read all of the streams once and compare them with their checksums. Raise what :class:`ProvenStream` and the
    reader raise."""
    for stream in streams:
        for _ in ProvenStream(reader, stream).blocks():
            pass


@contextmanager
def damage_named(reader: StateReader, streams: Iterable[StreamStateHandle]) -> Iterator[None]:
    """Replace an error of the block by one that names the damaged file, if one of the streams is damaged.

    Damaged bytes can cause any error while they are decoded. Errors that a retry may solve are raised unchanged."""
    try:
        yield
    except RetryableError:
        raise
    except StatelibError:
        prove(reader, streams)
        raise
