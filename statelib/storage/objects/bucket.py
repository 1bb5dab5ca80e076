"""The requests to one bucket that checkpoints need, with retries and typed errors.

No error contains the text of the client library, because that text names the endpoint and quotes its answers. The
library comes with the extra ``objects``. It is imported where a request is made, so that state on file systems works
without it.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
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
"""The size of the parts in which larger objects are uploaded. The parts are larger if there would be too many."""
BLOCK_BYTES = 1 << 20

_PAGE = 1_000
_MAX_PARTS = 9_000
_GIB = 1 << 30
_PARTS_AT_ONCE = 2
_STATUS = re.compile(r"status code: (\d{3})\b")
_IN_TROUBLE = (408, 425, 429)
_BEYOND_THE_END = 416
_NO_BUCKET = ("NoSuchBucket", "ContainerNotFound")
_TIMED_OUT = "RequestTimeout"
"""The code with which S3 answers, with status 400, if it waited too long for the next bytes of a request."""

if TYPE_CHECKING:
    from obstore import GetResult, ObjectMeta

    from statelib.storage.objects.clients import ObjectStore

T = TypeVar("T")


@dataclass(frozen=True)
class StoredObject:
    """The key, size and modification time of an object. ``modified_at_ms`` is by the storage's clock, in epoch
    milliseconds."""

    key: str
    size_bytes: int
    modified_at_ms: int


class Bucket:
    """One bucket, given by its URI. Credentials and endpoint come from the environment when the first request is made.
    A pickled bucket holds only the URI and the retries. Thread-safe."""

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
        """Store an object under a key that no other writer uses. The whole request is repeated, as often as the
        retries allow, until it is answered.

        ``content`` returns the bytes anew for each attempt. An error that it raises ends the upload, which leaves
        neither an object nor parts of one."""

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
        """Store an object if its key is free, by one PUT with ``If-None-Match: *`` that is never repeated.

        Raises ConflictError (``name-taken``) if the storage refused the PUT, RetryableError if it is unknown whether
        the PUT was applied."""

        import obstore

        crash_point("object: before create")
        self._once(f"publishing {self._shown(key)}", lambda store: obstore.put(store, key, data, mode="create"))
        crash_point("object: created")

    def look(self, key: str) -> StoredObject:
        """Return the size and modification time of an object. Raises NotFoundError (``missing-file``)."""

        import obstore

        return self._run(f"looking at {self._shown(key)}", lambda store: _stored(obstore.head(store, key)))

    def size(self, key: str) -> int:
        """Return the size of an object in bytes. Raises NotFoundError (``missing-file``)."""
        return self.look(key).size_bytes

    def read(self, key: str, max_bytes: int) -> bytes:
        """Return all bytes of an object.

        Raises NotFoundError (``missing-file``), and CorruptStateError (``too-large``) for an object larger than
        ``max_bytes``, before it is read."""

        import obstore

        what = f"reading {self._shown(key)}"

        def attempt(store: "ObjectStore") -> bytes:
            response = obstore.get(store, key)
            size = response.meta["size"]
            if size > max_bytes:
                raise CorruptStateError(f"{what}: {size} bytes, expected at most {max_bytes}", kind="too-large")
            return _whole(what, bytes(response.bytes()), size)

        return self._run(what, attempt)

    def read_range(self, key: str, start: int, stop: int) -> tuple[bytes, int]:
        """Return the bytes ``start`` (inclusive) to ``stop`` (exclusive), fewer if the object ends before that, and
        the size of the whole object. Raises NotFoundError (``missing-file``)."""

        import obstore

        if start == stop:
            return b"", self.size(key)
        what = f"reading {self._shown(key)}"

        def attempt(store: "ObjectStore") -> tuple[bytes, int]:
            response = obstore.get(store, key, options={"range": (start, stop)})
            size = response.meta["size"]
            return _whole(what, bytes(response.bytes()), max(0, min(stop, size) - start)), size

        return self._run(what, attempt)

    def scan(self, key: str, begin: Callable[[int], Callable[[memoryview], None]]) -> None:
        """Read an object block by block. ``begin`` is called with the size of the object in bytes; every block is
        passed to the function that it returned. ``begin`` is called again if the object is read from its start again.

        An answer that breaks off is continued where it ended, because a large object takes longer than one request may.
        The retries count from the last block that came. Raises NotFoundError (``missing-file``)."""

        import obstore

        what = f"reading {self._shown(key)}"
        reading = _Reading(what, begin, continues=bool(self.retries.delays_s))

        def attempt(store: "ObjectStore") -> bool:
            options: Any = {"range": reading.rest} if reading.taken_bytes else {}
            return reading.take(obstore.get(store, key, options=options))

        while not self._run(what, attempt):
            pass

    def delete(self, key: str) -> None:
        """Delete an object. It succeeds if the object is gone already."""

        import obstore

        def attempt(store: "ObjectStore") -> None:
            crash_point("object: before delete")
            with contextlib.suppress(FileNotFoundError):
                obstore.delete(store, key)
            crash_point("object: deleted")

        self._run(f"removing {self._shown(key)}", attempt)

    def copy(self, source: str, key: str, size_bytes: int) -> None:
        """Copy an object of ``size_bytes`` within the bucket, to a key that no other writer uses. The storage itself
        copies it, and answers when it has done so: for each GiB that is begun, it has the time of one request.

        Raises NotFoundError (``missing-file``)."""

        import obstore

        timeout_s = self.retries.request_timeout_s * max(-(-size_bytes // _GIB), 1)
        patient = Bucket(self.uri, replace(self.retries, request_timeout_s=timeout_s))
        what = f"copying {self._shown(source)} to {self._shown(key)}"
        crash_point("object: before copy")
        patient._run(what, lambda store: obstore.copy(store, source, key))
        crash_point("object: copied")

    def delete_all(self, keys: Sequence[str]) -> None:
        """Delete many objects, in as few requests as the storage allows. Objects that are gone already are ignored."""

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
            for key in keys:  # some storages end a batch at an object that is gone
                self.delete(key)

    def list(self, prefix: str, at_most: int | None = None) -> list[StoredObject]:
        """Return the objects whose key begins with ``prefix`` and a slash, sorted by key: all of them, or any
        ``at_most`` of them. They are requested page by page."""

        import obstore

        def attempt(store: "ObjectStore") -> list[StoredObject]:
            pages = obstore.list(store, prefix or None, chunk_size=at_most or _PAGE)
            objects = islice((_stored(item) for page in pages for item in page), at_most)
            return sorted(objects, key=lambda item: item.key)

        return self._run(f"listing {self._shown(prefix)}", attempt)

    def prefixes(self, prefix: str) -> Sequence[str]:
        """Return the keys' parts up to the next slash after ``prefix`` and a slash. They are what directories directly
        in a directory are on a file system."""

        import obstore

        def attempt(store: "ObjectStore") -> Sequence[str]:
            return obstore.list_with_delimiter(store, prefix or None)["common_prefixes"]

        return self._run(f"listing {self._shown(prefix)}", attempt)

    def _run(self, what: str, request: "Callable[[ObjectStore], T]") -> T:
        return self.retries.run(lambda: self._once(what, request))

    def _once(self, what: str, request: "Callable[[ObjectStore], T]") -> T:
        """Make a request once, and raise an error of the client as a typed error that begins with ``what``."""
        from obstore.exceptions import BaseError

        try:
            return request(self._opened())
        except (BaseError, FileNotFoundError, ValueError) as error:
            settings = SCHEMES[object_location(self.uri).scheme].settings
            failure = _typed(what, error, f"check {settings} in the environment")
        raise failure  # outside of the except clause: the client's error, which names the endpoint, is not its context

    def _sent(self, what: str, request: "Callable[[ObjectStore], None]") -> None:
        """Make an upload request once. Raise RetryableError if the multipart upload is gone: either it was completed
        and the reply was lost, or it was aborted. Then the object has to be sent again."""
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


class _Reading:
    """The reading of one object by one or more requests. ``begin``: as for :meth:`Bucket.scan`. ``continues``: whether
    an answer that breaks off is continued. ``taken_bytes``: the number of bytes that were passed on."""

    def __init__(self, what: str, begin: Callable[[int], Callable[[memoryview], None]], *, continues: bool) -> None:
        self._what = what
        self._begin = begin
        self._continues = continues
        self._version: tuple[int, str | None] = (0, None)
        self.taken_bytes = 0

    @property
    def rest(self) -> tuple[int, int]:
        """The range of bytes that are not read yet."""
        return self.taken_bytes, self._version[0]

    def take(self, response: "GetResult") -> bool:
        """Pass on the blocks of an answer, and return whether they reach the end of the object. Raise if nothing more
        of it came."""
        from obstore.exceptions import BaseError

        version, before = (response.meta["size"], response.meta.get("e_tag")), self.taken_bytes
        if not before:
            self._version, self._pass_on = version, self._begin(version[0])
        elif version != self._version:
            self.taken_bytes = 0
            raise RetryableError(f"{self._what}: it changed while it was read", kind="storage-io")
        try:
            for block in response.stream(min_chunk_size=BLOCK_BYTES):
                view = memoryview(block)
                self._pass_on(view)
                self.taken_bytes += len(view)
        except BaseError:
            if not self._may_continue(before):
                raise
        if self.taken_bytes < version[0] and self._may_continue(before):
            return False
        _check_whole(self._what, self.taken_bytes, version[0])
        return True

    def _may_continue(self, before_bytes: int) -> bool:
        return self._continues and self.taken_bytes > before_bytes


_INSECURE = re.compile(r"performing [A-Z]+ http://\S+ in \S+ - HTTP error: builder error")
"""The text of the client's error for an endpoint that is not ``https:``."""


def _typed(what: str, error: Exception, advice: str) -> StatelibError:
    """Return the error of statelib for an error of the client."""
    from obstore.exceptions import AlreadyExistsError, PermissionDeniedError, UnauthenticatedError

    text = str(error)
    status_match = _STATUS.search(text)
    status = int(status_match[1]) if status_match else 0
    if _INSECURE.search(text):
        return insecure_endpoint(what)
    no_bucket = any(f"<Code>{code}</Code>" in text for code in _NO_BUCKET)
    if no_bucket or isinstance(error, FileNotFoundError):  # the client has no class for a listing without a bucket
        return _not_found(what, no_bucket, advice)
    if isinstance(error, AlreadyExistsError):
        return ConflictError(f"{what}: refused, an object has that key", kind="name-taken")
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return InvalidRequestError(f"{what}: access denied", kind="storage-denied", hint=advice)
    if isinstance(error, ValueError):
        return InvalidRequestError(f"{what}: the client refuses the key or its settings", kind="bad-path", hint=advice)
    return _failed_with(what, status, advice, timed_out=f"<Code>{_TIMED_OUT}</Code>" in text)


def _not_found(what: str, no_bucket: bool, advice: str) -> NotFoundError:
    if no_bucket:
        return NotFoundError(f"{what}: there is no such bucket", kind="no-bucket", hint=advice)
    return NotFoundError(f"{what}: no such object", kind="missing-file")


def _failed_with(what: str, status: int, advice: str, *, timed_out: bool) -> StatelibError:
    """Return the error of a request that failed with an HTTP status; 0 if no whole answer came. ``timed_out``: whether
    the storage did not get the whole request in time."""
    if status == _BEYOND_THE_END:
        return CorruptStateError(
            f"{what}: the object ends before the bytes that are asked for",
            kind="size-mismatch",
            hint="restore an older checkpoint",
        )
    answer = f"{what}: the storage answered with status {status}" if status else f"{what}: no whole answer came"
    if timed_out or status == 0 or status >= 500 or status in _IN_TROUBLE:
        return RetryableError(answer, kind="storage-io", hint=f"run the task again; if it stays, {advice}")
    return InvalidRequestError(answer, kind="storage-refused", hint=advice)


def _stored(item: "ObjectMeta") -> StoredObject:
    return StoredObject(item["path"], item["size"], int(item["last_modified"].timestamp() * 1000))


def _whole(what: str, data: bytes, expected_bytes: int) -> bytes:
    _check_whole(what, len(data), expected_bytes)
    return data


def _check_whole(what: str, received_bytes: int, expected_bytes: int) -> None:
    """Raise RetryableError (``storage-io``) unless the whole answer arrived."""
    if received_bytes != expected_bytes:
        raise RetryableError(
            f"{what}: the answer ended after {received_bytes} of {expected_bytes} bytes", kind="storage-io"
        )
