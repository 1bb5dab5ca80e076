"""Atomic publication of an object: put-if-absent, settled by reading back whenever the answer leaves a doubt.

Source: protocol of ``_metadata``. A refusal may be the answer to one's own success whose reply was lost, 409 is
"try again", and no answer means neither yes nor no: only the stored bytes tell.
"""

from statelib.errors import ConflictError, CorruptStateError, NotFoundError, RetryableError, UnsupportedError
from statelib.storage.filesystem.publish import MAX_METADATA_BYTES, METADATA_NAME
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import ObjectLocation, object_location
from statelib.storage.retries import IMPATIENT, Retries

PROBE_NAME = ".statelib-if-none-match"


def put_object_if_absent(objects: Bucket, location: ObjectLocation, data: bytes) -> bytes:
    """Give ``data`` the key unless something has it; return the bytes that have it afterwards.

    Raises RetryableError while the storage does not say what it holds: nothing was deleted then."""

    once = Bucket(objects.uri, IMPATIENT)  # the pauses belong to publishing and reading back together

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
    """All bytes of a published object.

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
    """Prove that the storage refuses to overwrite: the second of two conditional PUTs of one key must fail.

    The object stays, so that it is made once a root. Raises UnsupportedError (``no-put-if-absent``)."""
    probe = root.below(PROBE_NAME)

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
