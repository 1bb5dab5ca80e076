"""Atomic publication on S3: put-if-absent, settled by reading back whenever the answer leaves a doubt.

Source: protocol of ``_metadata``. A refusal may be the answer to one's own success whose reply was lost, 409 is
"try again", and no answer means neither yes nor no: only the stored bytes tell.
"""

from statelib.errors import ConflictError, CorruptStateError, NotFoundError, RetryableError, UnsupportedError
from statelib.storage.publish import MAX_METADATA_BYTES, METADATA_NAME
from statelib.storage.retries import IMPATIENT, Retries
from statelib.storage.s3_objects import S3Objects
from statelib.storage.s3_uris import S3Location, s3_location

PROBE_NAME = ".statelib-if-none-match"


def s3_put_if_absent(objects: S3Objects, location: S3Location, data: bytes) -> bytes:
    """Give ``data`` the key unless something has it; return the bytes that have it afterwards.

    Raises RetryableError while the storage does not say what it holds: nothing was deleted then."""

    once = S3Objects(objects.bucket, IMPATIENT)  # the pauses belong to publishing and reading back together

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


def s3_read_published(directory: str, retries: Retries, name: str = METADATA_NAME) -> bytes:
    """All bytes of a published object.

    Raises NotFoundError (``no-metadata``), CorruptStateError (``metadata-too-large``)."""
    location = s3_location(directory).below(name)
    try:
        return S3Objects(location.bucket, retries).read(location.key, MAX_METADATA_BYTES)
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


def check_put_if_absent(objects: S3Objects, root: S3Location) -> None:
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
        f"bucket {root.bucket}: its storage ignores If-None-Match, so that a checkpoint could be overwritten",
        kind="no-put-if-absent",
        hint="use a storage that honours If-None-Match: * on PUT",
    )
