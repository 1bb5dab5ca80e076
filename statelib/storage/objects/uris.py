"""Parsing the URIs of objects: ``<scheme>://<bucket>/<prefix>``. No request is made.

As in ``file:`` URIs, nothing is percent-encoded. A URI holds no credentials and no endpoint: both come from the
environment. Text that looks like them is refused, and the error does not contain it.
"""

import re
from dataclasses import dataclass

from statelib.errors import InvalidRequestError
from statelib.storage.uris import relative_parts, shown

MAX_KEY_BYTES = 1024


@dataclass(frozen=True)
class Scheme:
    """The rules of one URI scheme.

    ``bucket``: the pattern of the bucket's name. ``example``: a URI for messages.
    ``settings``: the names of the environment variables with credentials and endpoint.
    ``unfinished``: advice on removing the parts of uploads whose writer was killed, '' if the storage removes them."""

    bucket: re.Pattern[str]
    example: str
    settings: str
    unfinished: str
    copied_bytes: int
    """The size in bytes of the largest object that one request copies, so that the copy is complete when the request is
    answered; 0 if there is no such request."""


_AZURE_CONTAINER = r"[a-z0-9](?:-?[a-z0-9]){2,62}"
_AZURE_SETTINGS = "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY"

SCHEMES = {
    "s3": Scheme(
        re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"),
        "s3://bucket/prefix",
        "AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        "give the bucket a lifecycle rule with AbortIncompleteMultipartUpload",
        5 << 30,
    ),
    "gs": Scheme(
        re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"),
        "gs://bucket/prefix",
        "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT",
        "give the bucket a lifecycle rule with AbortIncompleteMultipartUpload",
        5 << 30,
    ),
    "az": Scheme(re.compile(_AZURE_CONTAINER), "az://container/prefix", _AZURE_SETTINGS, "", 0),
    "abfss": Scheme(
        re.compile(_AZURE_CONTAINER + r"@[a-z0-9]{3,24}\.dfs\.core\.windows\.net"),
        "abfss://container@account.dfs.core.windows.net/prefix",
        _AZURE_SETTINGS,
        "",
        0,
    ),
}
"""The supported schemes of object storages. Azure itself removes uncommitted uploads after a week. Its copies may still
be running when the request is answered, and would fail if the original were deleted meanwhile."""

_URI = re.compile(r"([A-Za-z0-9]+)://([^/]*)/?(.*)", re.DOTALL)


@dataclass(frozen=True)
class ObjectLocation:
    """A scheme, a bucket (Azure: a container) and the components of a key or prefix in it."""

    scheme: str
    bucket: str
    parts: tuple[str, ...]

    @property
    def bucket_uri(self) -> str:
        return f"{self.scheme}://{self.bucket}"

    @property
    def uri(self) -> str:
        return "/".join((self.bucket_uri, *self.parts))

    @property
    def key(self) -> str:
        return "/".join(self.parts)

    def below(self, *parts: str) -> "ObjectLocation":
        """Return the location of the components ``parts`` below this one.

        Raises InvalidRequestError (``bad-path``) for a key of more than ``MAX_KEY_BYTES`` bytes."""
        location = ObjectLocation(self.scheme, self.bucket, (*self.parts, *parts))
        if len(location.key.encode()) > MAX_KEY_BYTES:
            raise InvalidRequestError(
                f"{shown(location.uri)}: expected a key of at most {MAX_KEY_BYTES} bytes", kind="bad-path"
            )
        return location

    def holds(self, other: "ObjectLocation") -> bool:
        """Return whether ``other`` lies below this prefix."""
        length = len(self.parts)
        same = self.bucket_uri == other.bucket_uri
        return same and len(other.parts) > length and other.parts[:length] == self.parts


def location_if_object(text: str) -> ObjectLocation | None:
    """Return the location of an object storage's URI, None for text of any other scheme. Raises like
    :func:`object_location`."""
    scheme, separator, _ = text.partition("://")
    return object_location(text) if separator and scheme.lower() in SCHEMES else None


def object_location(text: str) -> ObjectLocation:
    """Return the location of an object storage's URI. Double slashes and slashes at the end are dropped.

    Raises InvalidRequestError (``outside-root``) for a ``..`` component, InvalidRequestError (``bad-path``) for any
    other text that is no such URI.
    """
    uri = _URI.fullmatch(text)
    name = uri[1].lower() if uri else ""
    if uri is None or name not in SCHEMES:
        examples = " or ".join(scheme.example for scheme in SCHEMES.values())
        raise InvalidRequestError(f"{shown(text)}: expected {examples}", kind="bad-path")
    scheme, bucket, prefix = SCHEMES[name], uri[2], uri[3]
    if not scheme.bucket.fullmatch(bucket):
        raise InvalidRequestError(
            f"{name}:// URI: expected {scheme.example}, and nothing else before the first slash",
            kind="bad-path",
            hint=f"credentials and endpoint belong in the environment: {scheme.settings}",
        )
    if "?" in prefix or "#" in prefix or not prefix.isprintable():
        raise InvalidRequestError(
            f"{name}:// URI in bucket {bucket}: expected printable text without '?' and '#'", kind="bad-path"
        )
    parts = [part for part in prefix.split("/") if part not in ("", ".")]
    return ObjectLocation(name, bucket, ()).below(*(relative_parts("/".join(parts)) if parts else ()))
