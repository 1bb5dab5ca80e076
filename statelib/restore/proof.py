"""Streams that are read piece by piece are proved to be what was written, by the checksum that their reader knows.

What is copied or read whole its reader proves by itself. Of a stream of which only some key groups are read, counts and
digests are the proof; then damage elsewhere in it does not matter.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from statelib.errors import RetryableError, StatelibError
from statelib.model.handles import StreamStateHandle
from statelib.storage.views import StateReader
from statelib.wire.checksum import crc32c

_BLOCK_BYTES = 1 << 20


class ProvenStream:
    """Reads ranges of a stream. Once all of it went by in order, it is compared with its checksum, before the last
    range is handed out: CorruptStateError (``checksum-mismatch``)."""

    def __init__(self, reader: StateReader, stream: StreamStateHandle) -> None:
        self._reader, self._stream = reader, stream
        self._end = self._crc = 0

    def __call__(self, start: int, stop: int) -> memoryview:
        data = self._reader.read_range(self._stream, start, stop)
        if start == self._end:
            self._crc, self._end = crc32c(data, self._crc), stop
            if stop == self._stream.size_bytes:
                self._reader.check_crc(self._stream, self._crc)
        return data

    def blocks(self) -> Iterator[memoryview]:
        """All of it."""
        for start in range(0, self._stream.size_bytes, _BLOCK_BYTES):
            yield self(start, min(start + _BLOCK_BYTES, self._stream.size_bytes))


def prove(reader: StateReader, streams: Iterable[StreamStateHandle]) -> None:
    """Read all of the streams once. Raises as :class:`ProvenStream`, and what reading raises."""
    for stream in streams:
        for _ in ProvenStream(reader, stream).blocks():
            pass


@contextmanager
def damage_named(reader: StateReader, streams: Iterable[StreamStateHandle]) -> Iterator[None]:
    """What is made of damaged bytes may fail anyhow: then the damaged file is named instead, if there is one."""
    try:
        yield
    except RetryableError:
        raise
    except StatelibError:
        prove(reader, streams)
        raise
