"""Objects of one bucket: the few requests that checkpoints need, with retries and typed errors.

No error repeats what the client library said, because that names the endpoint and quotes its answers. The library comes
with the extra ``objects`` and is imported where a request is made: state on file systems does without.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from statelib.crash_points import crash_point
from statelib.errors import (
    ConflictError,
    CorruptStateError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StatelibError,
)
from statelib.model.amounts import number_of
from statelib.storage.objects.clients import insecure_endpoint, open_client
from statelib.storage.objects.uris import SCHEMES, object_location
from statelib.storage.retries import Retries

PART_BYTES = 8 << 20
"""Larger objects go up in parts, of this size unless they would be too many."""
BLOCK_BYTES = 1 << 20

_PAGE = 1_000
_MAX_PARTS = 9_000
_PARTS_AT_ONCE = 2
_STATUS = re.compile(r"status code: (\d{3})\b")
_IN_TROUBLE = (408, 425, 429)
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")

if TYPE_CHECKING:
    from obstore import ObjectMeta

    from statelib.storage.objects.clients import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True)
class StoredObject:
    """``modified_at_ms``: the storage's clock, epoch milliseconds."""

    key: str
    size_bytes: int
    modified_at_ms: int


class Bucket:
    """One bucket, by its URI. Credentials and endpoint come from the environment when the first request is made;
    pickling carries the URI and the retries only. Thread-safe."""

    def __init__(self, uri: str, retries: Retries) -> None:
        self.uri = uri
        self.retries = retries
        self._store: ObjectStore | None = None

    def __getstate__(self) -> tuple[str, Retries]:
        return self.uri, self.retries

    def __setstate__(self, state: tuple[str, Retries]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Bucket({self.uri!r})"

    def put(self, key: str, size_bytes: int, content: Callable[[], Iterator[bytes]]) -> None:
        """Store an object under a key that no other writer has; repeated whole until it was answered.

        Whatever ``content`` raises ends the upload and leaves no object, nor parts of one."""

        import obstore

        parts: dict[str, Any] = {"chunk_size": max(PART_BYTES, -(-size_bytes // _MAX_PARTS))}

        def attempt(store: "ObjectStore") -> None:
            crash_point("object: before put")
            if size_bytes <= PART_BYTES:
                obstore.put(store, key, b"".join(content()), use_multipart=False)
            else:
                obstore.put(store, key, content(), use_multipart=True, max_concurrency=_PARTS_AT_ONCE, **parts)
            crash_point("object: put")

        what = f"writing {self._shown(key)}"
        self.retries.run(lambda: self._sent(what, attempt))

    def create(self, key: str, data: bytes) -> None:
        """One PUT with ``If-None-Match: *``, never repeated. ConflictError (``name-taken``) if it was refused, for
        whatever reason; RetryableError where nobody knows whether it was applied."""

        import obstore

        crash_point("object: before create")
        self._once(f"publishing {self._shown(key)}", lambda store: obstore.put(store, key, data, mode="create"))
        crash_point("object: created")

    def look(self, key: str) -> StoredObject:
        """What is known of an object without reading it. Raises NotFoundError (``missing-file``)."""

        import obstore

        return self._run(f"looking at {self._shown(key)}", lambda store: _stored(obstore.head(store, key)))

    def size(self, key: str) -> int:
        """Raises NotFoundError (``missing-file``)."""
        return self.look(key).size_bytes

    def read(self, key: str, max_bytes: int) -> bytes:
        """All of an object. CorruptStateError (``too-large``) for more than ``max_bytes``, before they are read."""

        import obstore

        what = f"reading {self._shown(key)}"

        def attempt(store: "ObjectStore") -> bytes:
            found = obstore.get(store, key)
            size = found.meta["size"]
            if size > max_bytes:
                raise CorruptStateError(f"{what}: {size} bytes, expected at most {max_bytes}", kind="too-large")
            return _whole(what, bytes(found.bytes()), size)

        return self._run(what, attempt)

    def read_range(self, key: str, start: int, stop: int) -> tuple[bytes, int]:
        """(bytes ``start`` to ``stop``, fewer where the object ends before; size of the whole object)."""

        import obstore

        if start == stop:
            return b"", self.size(key)
        what = f"reading {self._shown(key)}"

        def attempt(store: "ObjectStore") -> tuple[bytes, int]:
            found = obstore.get(store, key, options={"range": (start, stop)})
            size = found.meta["size"]
            return _whole(what, bytes(found.bytes()), max(0, min(stop, size) - start)), size

        return self._run(what, attempt)

    def scan(self, key: str, begin: Callable[[int], Callable[[memoryview], None]]) -> None:
        """Read an object block by block. ``begin`` is given its size at each attempt, and returns what takes the
        blocks of that attempt."""

        import obstore

        what = f"reading {self._shown(key)}"

        def attempt(store: "ObjectStore") -> None:
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

        import obstore

        def attempt(store: "ObjectStore") -> None:
            crash_point("object: before delete")
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(store, key)
            crash_point("object: deleted")

        self._run(f"removing {self._shown(key)}", attempt)

    def copy(self, source: str, key: str) -> None:
        """Within the bucket, by the server, under a key that no other writer has. NotFoundError (``missing-file``)."""

        import obstore

        what = f"copying {self._shown(source)} to {self._shown(key)}"
        crash_point("object: before copy")
        self._run(what, lambda store: obstore.copy(store, source, key))
        crash_point("object: copied")

    def delete_all(self, keys: Sequence[str]) -> None:
        """Many at once, in as few requests as the storage allows."""

        import obstore

        def attempt(store: "ObjectStore") -> bool:
            crash_point("objects: before delete")
            try:
                obstore.delete(store, list(keys))
            except FileNotFoundError:
                return False
            crash_point("objects: deleted")
            return True

        if not self._run(f"removing {number_of(len(keys), 'object')} of {self.uri}", attempt):
            for key in keys:  # where deleting what is gone is an error, it ends a batch
                self.delete(key)

    def list(self, prefix: str, at_most: int | None = None) -> list[StoredObject]:
        """The objects whose key begins with ``prefix`` and a slash, page by page: all of them by key, or some."""

        import obstore

        def attempt(store: "ObjectStore") -> list[StoredObject]:
            pages = obstore.list(store, prefix or None, chunk_size=at_most or _PAGE)
            found = islice((_stored(item) for page in pages for item in page), at_most)
            return sorted(found, key=lambda item: item.key)

        return self._run(f"listing {self._shown(prefix)}", attempt)

    def prefixes(self, prefix: str) -> Sequence[str]:
        """Keys up to the next slash after ``prefix`` and a slash: what would be directories."""

        import obstore

        def attempt(store: "ObjectStore") -> Sequence[str]:
            return obstore.list_with_delimiter(store, prefix or None)["common_prefixes"]

        return self._run(f"listing {self._shown(prefix)}", attempt)

    def _run(self, what: str, request: "Callable[[ObjectStore], T]") -> T:
        return self.retries.run(lambda: self._once(what, request))

    def _once(self, what: str, request: "Callable[[ObjectStore], T]") -> T:
        from obstore.exceptions import BaseError

        try:
            return request(self._opened())
        except (BaseError, FileNotFoundError, ValueError) as error:
            settings = SCHEMES[object_location(self.uri).scheme].settings
            failure = _typed(what, error, f"check {settings} in the environment")
        raise failure  # out here, so that the client's error, which names the endpoint, is not its context

    def _sent(self, what: str, request: "Callable[[ObjectStore], None]") -> None:
        """A multipart upload that is gone was completed and the reply lost, or aborted by somebody: send it again."""
        try:
            self._once(what, request)
        except NotFoundError as error:
            if error.kind != "missing-file":
                raise
            raise RetryableError(f"{what}: the upload is gone", kind="storage-io") from None

    def _opened(self) -> "ObjectStore":
        if self._store is None:
            self._store = open_client(object_location(self.uri), self.retries.request_timeout_s)
        return self._store

    def _shown(self, key: str) -> str:
        return f"{self.uri}/{key}"


_INSECURE = re.compile(r"performing [A-Z]+ http://\S+ in \S+ - HTTP error: builder error")
"""How the client refuses to send anything to such an endpoint."""


def _typed(what: str, error: Exception, advice: str) -> StatelibError:
    """An error of the client as ours."""
    from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError

    text = str(error)
    found = _STATUS.search(text)
    status = int(found[1]) if found else 0
    if _INSECURE.search(text):
        return insecure_endpoint(what)
    if isinstance(error, FileNotFoundError):
        return _not_found(what, any(f"<Code>{code}</Code>" in text for code in _NO_BUCKET), advice)
    if isinstance(error, AlreadyExistsError):
        return ConflictError(f"{what}: refused, an object has that key", kind="name-taken")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return InvalidRequestError(f"{what}: access denied", kind="storage-denied", hint=advice)
    if isinstance(error, ValueError):
        return InvalidRequestError(f"{what}: the client refuses the key or its settings", kind="bad-path", hint=advice)
    return _answered(what, status, advice)


def _not_found(what: str, bucket: bool, advice: str) -> NotFoundError:
    if bucket:
        return NotFoundError(f"{what}: there is no such bucket", kind="no-bucket", hint=advice)
    return NotFoundError(f"{what}: no such object", kind="missing-file")


def _answered(what: str, status: int, advice: str) -> StatelibError:
    """``status`` is 0 where no answer, or half of one, came."""
    answer = f"{what}: the storage answered with status {status}" if status else f"{what}: no whole answer came"
    if status == 0 or status >= 500 or status in _IN_TROUBLE:
        return RetryableError(answer, kind="storage-io", hint=f"run the task again; if it stays, {advice}")
    return InvalidRequestError(answer, kind="storage-refused", hint=advice)


def _stored(item: "ObjectMeta") -> StoredObject:
    return StoredObject(item["path"], item["size"], int(item["last_modified"].timestamp() * 1000))


def _whole(what: str, data: bytes, expected: int) -> bytes:
    _check_whole(what, len(data), expected)
    return data


def _check_whole(what: str, found: int, expected: int) -> None:
    if found != expected:
        raise RetryableError(f"{what}: the answer ended after {found} of {expected} bytes", kind="storage-io")
