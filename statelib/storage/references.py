"""References to storage locations as opaque bytes. A trigger ships them to the workers (R86 to R88).

Source: docs/spec/requirements.md R85 to R87; CheckpointStorageLocationReference,
AbstractFsCheckpointStorageAccess.encodePathAsReference.
"""

from statelib.errors import InvalidRequestError
from statelib.model.amounts import number_of
from statelib.storage.ports.views import DEFAULT_REFERENCE, StorageReference

_MAGIC = bytes.fromhex("055f3f18")
"""The bytes in front of a directory's URI in UTF-8. The default reference has no bytes at all."""


def encode_reference(reference: StorageReference, default: StorageReference = DEFAULT_REFERENCE) -> bytes:
    """Return a reference as opaque bytes. They are empty for the ``default`` location, because a worker computes that
    location itself."""
    return b"" if reference in (default, DEFAULT_REFERENCE) else _MAGIC + reference.directory.encode()


def decode_reference(data: bytes) -> StorageReference:
    """Return the reference of such bytes, the inverse of :func:`encode_reference`.

    Raises InvalidRequestError (``bad-reference``) for any other bytes."""
    if not data:
        return DEFAULT_REFERENCE
    try:
        if not data.startswith(_MAGIC) or data == _MAGIC:
            raise ValueError("no storage location")
        return StorageReference(data.removeprefix(_MAGIC).decode())
    except ValueError as error:
        raise InvalidRequestError(
            f"reference of {number_of(len(data), 'byte')}, {data[:8].hex()}...: expected the location of a checkpoint",
            kind="bad-reference",
            hint="driver and executors must run the same statelib",
        ) from error
