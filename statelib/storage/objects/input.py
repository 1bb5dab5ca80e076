"""An object as a file that can be read and sought, for libraries that read files."""

import io
from functools import cached_property
from typing import Any

from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import object_location
from statelib.storage.retries import Retries


class ObjectInput(io.RawIOBase):
    """The object of a URI. Each read is one request, so a reader should ask for large pieces.

    Its methods raise NotFoundError (``missing-file``), RetryableError (``storage-io``) and InvalidRequestError
    (``storage-denied``) in place of OSError."""

    def __init__(self, uri: str, retries: Retries) -> None:
        location = object_location(uri)
        self._bucket, self._key = Bucket(location.bucket_uri, retries), location.key
        self._position = 0

    @cached_property
    def _size_bytes(self) -> int:
        return self._bucket.size(self._key)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position}.get(whence)
        self._position = (self._size_bytes if origin is None else origin) + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        stop = min(self._position + len(view), self._size_bytes)
        data, _ = self._bucket.read_range(self._key, self._position, max(stop, self._position))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)
