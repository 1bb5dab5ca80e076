"""Objects of one S3 bucket: the few requests that checkpoints need, with retries and typed errors.

No error repeats what the client library said, because that names the endpoint and quotes its answers; the
library's own retries are off, because they hide whether a conditional PUT was answered at all.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store

from statelib.errors import (
    ConflictError,
    CorruptStateError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StatelibError,
)
from statelib.storage.retries import Retries

PART_BYTES = 8 << 20
"""Larger objects go up in parts, of this size unless they would be too many."""
BLOCK_BYTES = 1 << 20
REQUEST_TIMEOUT = timedelta(seconds=60)

_MAX_PARTS = 9_000
_PARTS_AT_ONCE = 2
_STATUS = re.compile(r"status code: (\d{3})\b")
_IN_TROUBLE = (408, 425, 429)
_ADVICE = "check AWS_ENDPOINT_URL, AWS_REGION and the credentials in the environment"

T = TypeVar("T")


@dataclass(frozen=True)
class StoredObject:
    """``modified_at_ms``: the storage's clock, epoch milliseconds."""

    key: str
    size_bytes: int
    modified_at_ms: int


class S3Objects:
    """One bucket. Credentials and endpoint come from the environment (``AWS_*``) when the first request is made;
    pickling carries the bucket's name and the retries only. Thread-safe."""

    def __init__(self, bucket: str, retries: Retries) -> None:
        self.bucket = bucket
        self.retries = retries
        self._store: S3Store | None = None

    def __getstate__(self) -> tuple[str, Retries]:
        return self.bucket, self.retries

    def __setstate__(self, state: tuple[str, Retries]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"S3Objects({self.bucket!r})"

    def put(self, key: str, size_bytes: int, content: Callable[[], Iterator[bytes]]) -> None:
        """Store an object under a key that no other writer has; repeated whole until it was answered.

        Whatever ``content`` raises ends the upload and leaves no object, nor parts of one."""
        parts: dict[str, Any] = {"chunk_size": max(PART_BYTES, -(-size_bytes // _MAX_PARTS))}

        def attempt(store: S3Store) -> None:
            if size_bytes <= PART_BYTES:
                obstore.put(store, key, b"".join(content()), use_multipart=False)
            else:
                obstore.put(store, key, content(), use_multipart=True, max_concurrency=_PARTS_AT_ONCE, **parts)

        what = f"writing {self._shown(key)}"
        self.retries.run(lambda: self._sent(what, attempt))

    def create(self, key: str, data: bytes) -> None:
        """One PUT with ``If-None-Match: *``, never repeated. ConflictError (``name-taken``) if it was refused, for
        whatever reason; RetryableError where nobody knows whether it was applied."""
        self._once(f"publishing {self._shown(key)}", lambda store: obstore.put(store, key, data, mode="create"))

    def size(self, key: str) -> int:
        """Raises NotFoundError (``missing-file``)."""
        return self._run(f"looking at {self._shown(key)}", lambda store: int(obstore.head(store, key)["size"]))

    def read(self, key: str, max_bytes: int) -> bytes:
        """All of an object. CorruptStateError (``too-large``) for more than ``max_bytes``, before they are read."""
        what = f"reading {self._shown(key)}"

        def attempt(store: S3Store) -> bytes:
            found = obstore.get(store, key)
            size = found.meta["size"]
            if size > max_bytes:
                raise CorruptStateError(f"{what}: {size} bytes, expected at most {max_bytes}", kind="too-large")
            return _whole(what, bytes(found.bytes()), size)

        return self._run(what, attempt)

    def read_range(self, key: str, start: int, stop: int) -> tuple[bytes, int]:
        """(bytes ``start`` to ``stop``, fewer where the object ends before; size of the whole object)."""
        if start == stop:
            return b"", self.size(key)
        what = f"reading {self._shown(key)}"

        def attempt(store: S3Store) -> tuple[bytes, int]:
            found = obstore.get(store, key, options={"range": (start, stop)})
            size = found.meta["size"]
            return _whole(what, bytes(found.bytes()), max(0, min(stop, size) - start)), size

        return self._run(what, attempt)

    def scan(self, key: str, begin: Callable[[int], Callable[[memoryview], None]]) -> None:
        """Read an object block by block. ``begin`` is given its size at each attempt, and returns what takes the
        blocks of that attempt."""
        what = f"reading {self._shown(key)}"

        def attempt(store: S3Store) -> None:
            found = obstore.get(store, key)
            take, count = begin(found.meta["size"]), 0
            for block in found.stream(min_chunk_size=BLOCK_BYTES):
                view = memoryview(block)
                take(view)
                count += len(view)
            _check_whole(what, count, found.meta["size"])

        self._run(what, attempt)

    def delete(self, key: str) -> None:
        """An object that is gone is success."""

        def attempt(store: S3Store) -> None:
            try:
                obstore.delete(store, key)
            except FileNotFoundError:
                return

        self._run(f"removing {self._shown(key)}", attempt)

    def list(self, prefix: str) -> list[StoredObject]:
        """All objects whose key begins with ``prefix`` and a slash, by key."""

        def attempt(store: S3Store) -> list[StoredObject]:
            found = [item for page in obstore.list(store, prefix or None) for item in page]
            return [
                StoredObject(item["path"], item["size"], int(item["last_modified"].timestamp() * 1000))
                for item in sorted(found, key=lambda item: item["path"])
            ]

        return self._run(f"listing {self._shown(prefix)}", attempt)

    def _run(self, what: str, request: Callable[[S3Store], T]) -> T:
        return self.retries.run(lambda: self._once(what, request))

    def _once(self, what: str, request: Callable[[S3Store], T]) -> T:
        try:
            return request(self._opened())
        except (BaseError, FileNotFoundError, ValueError) as error:
            failure = _typed(what, error)
        raise failure  # out here, so that the client's error, which names the endpoint, is not its context

    def _sent(self, what: str, request: Callable[[S3Store], None]) -> None:
        """A multipart upload that is gone was completed and the reply lost, or aborted by somebody: send it again."""
        try:
            self._once(what, request)
        except NotFoundError as error:
            if error.kind != "missing-file":
                raise
            raise RetryableError(f"{what}: the upload is gone", kind="storage-io") from None

    def _opened(self) -> S3Store:
        if self._store is None:
            self._store = S3Store(
                self.bucket,
                client_options={"allow_http": True, "timeout": REQUEST_TIMEOUT},
                retry_config={"max_retries": 0},
            )
        return self._store

    def _shown(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"


def _typed(what: str, error: Exception) -> StatelibError:
    """An error of the client as ours."""
    text = str(error)
    found = _STATUS.search(text)
    status = int(found[1]) if found else 0
    if isinstance(error, FileNotFoundError):
        return _not_found(what, "<Code>NoSuchBucket</Code>" in text)
    if isinstance(error, AlreadyExistsError):
        return ConflictError(f"{what}: refused, an object has that key", kind="name-taken")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return InvalidRequestError(f"{what}: access denied", kind="storage-denied", hint=_ADVICE)
    if isinstance(error, ValueError):
        return InvalidRequestError(f"{what}: the client refuses the key or its settings", kind="bad-path", hint=_ADVICE)
    return _answered(what, status)


def _not_found(what: str, bucket: bool) -> NotFoundError:
    if bucket:
        return NotFoundError(f"{what}: there is no such bucket", kind="no-bucket", hint=_ADVICE)
    return NotFoundError(f"{what}: no such object", kind="missing-file")


def _answered(what: str, status: int) -> StatelibError:
    """``status`` is 0 where no answer, or half of one, came."""
    answer = f"{what}: the storage answered with status {status}" if status else f"{what}: no whole answer came"
    if status == 0 or status >= 500 or status in _IN_TROUBLE:
        return RetryableError(answer, kind="storage-io", hint=f"run the task again; if it stays, {_ADVICE}")
    return InvalidRequestError(answer, kind="storage-refused", hint=_ADVICE)


def _whole(what: str, data: bytes, expected: int) -> bytes:
    _check_whole(what, len(data), expected)
    return data


def _check_whole(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise RetryableError(f"{what}: the answer ended after {found} of {expected} bytes", kind="storage-io")
