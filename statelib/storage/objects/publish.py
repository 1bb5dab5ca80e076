"""Atomic publication of an object: a conditional PUT, and reading the object back if the answer leaves a doubt.

Source: docs/spec/protocol.md#publishing. A refusal may follow a successful PUT whose reply was lost, 409 means "try
again", and without an answer the PUT may be applied or not. In all these cases the stored bytes decide.
"""

from statelib.errors import ConflictError, CorruptStateError, NotFoundError, RetryableError, UnsupportedError
from statelib.storage.filesystem.publish import MAX_METADATA_BYTES
from statelib.storage.names import METADATA_NAME, PUT_PROBE_NAME
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import ObjectLocation, object_location
from statelib.storage.retries import IMPATIENT, Retries


def put_object_if_absent(objects: Bucket, location: ObjectLocation, data: bytes) -> bytes:
    """Publish ``data`` as an object unless an object has the key. Return the bytes that the object holds afterwards:
    ``data``, or the bytes of the writer that published first.

    Raises RetryableError (``storage-io``) if the storage does not answer. Nothing is deleted in that case."""

    once = Bucket(objects.uri, IMPATIENT)  # each attempt publishes and reads back, so the pauses lie between attempts

    def attempt() -> bytes:
        try:
            once.create(location.key, data)
        except (ConflictError, RetryableError):
            try:
                return once.read(location.key, MAX_METADATA_BYTES)
            except NotFoundError:
                raise RetryableError(
                    f"publishing {location.uri}: not applied",
                    kind="storage-io",
                    hint="run the task again; nothing was published yet",
                ) from None
        return data

    return objects.retries.run(attempt)


def read_published_object(directory: str, retries: Retries, name: str = METADATA_NAME) -> bytes:
    """Return all bytes of a published object.

    Raises NotFoundError (``no-metadata``), CorruptStateError (``metadata-too-large``)."""
    location = object_location(directory).below(name)
    try:
        return Bucket(location.bucket_uri, retries).read(location.key, MAX_METADATA_BYTES)
    except NotFoundError as error:
        if error.kind != "missing-file":
            raise
        raise NotFoundError(
            f"{directory}: no {name} object, hence no completed checkpoint here",
            kind="no-metadata",
            hint="statelib checkpoints list shows those there are",
        ) from None
    except CorruptStateError as error:
        raise CorruptStateError(error.message, kind="metadata-too-large") from None


def check_put_if_absent(objects: Bucket, root: ObjectLocation) -> None:
    """Check that the storage honours ``If-None-Match``: the second of two conditional PUTs of one key must fail.

    The object is not deleted, so that it is written only once per root. Raises UnsupportedError
    (``no-put-if-absent``)."""
    probe = root.below(PUT_PROBE_NAME)

    def refused() -> bool:
        try:
            objects.create(probe.key, b"Written twice to see whether If-None-Match is honoured; may be deleted.\n")
        except ConflictError:
            return True
        return False

    if objects.retries.run(refused) or objects.retries.run(refused):
        return
    raise UnsupportedError(
        f"{root.bucket_uri}: its storage ignores If-None-Match, so that a checkpoint could be overwritten",
        kind="no-put-if-absent",
        hint="use a storage that honours If-None-Match: * on PUT",
    )
