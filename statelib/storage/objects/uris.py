"""Where objects lie, as text: ``<scheme>://<bucket>/<prefix>``, parsed without asking anybody.

As with ``file:`` URIs nothing is percent-encoded. A URI holds no credentials and no endpoint: both
come from the environment, and text that looks like them is refused without being repeated.
"""

import re
from dataclasses import dataclass

from statelib.errors import InvalidRequestError
from statelib.storage.uris import relative_parts, shown

MAX_KEY_BYTES = 1024


@dataclass(frozen=True)
class Scheme:
    """``bucket``: what the first part of a URI looks like. ``settings``: the environment variables with the rest.
    ``unfinished``: what has to be done about the parts of an upload whose writer was killed."""

    bucket: re.Pattern[str]
    example: str
    settings: str
    unfinished: str
    copied_bytes: int
    """The largest object that one request copies, so that the copy is there when it is answered; 0 for none."""


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
"""The kinds of object storage there are. Azure itself drops what was never committed, after a week; its copies may
still be under way when they are answered, and an original that went meanwhile would spoil them."""

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
        """Raises InvalidRequestError (``bad-path``) for a key longer than object storages allow."""
        found = ObjectLocation(self.scheme, self.bucket, (*self.parts, *parts))
        if len(found.key.encode()) > MAX_KEY_BYTES:
            raise InvalidRequestError(
                f"{shown(found.uri)}: expected a key of at most {MAX_KEY_BYTES} bytes", kind="bad-path"
            )
        return found

    def holds(self, other: "ObjectLocation") -> bool:
        """Whether ``other`` lies below this prefix."""
        length = len(self.parts)
        same = self.bucket_uri == other.bucket_uri
        return same and len(other.parts) > length and other.parts[:length] == self.parts


def is_object(text: str) -> bool:
    """Whether it is a URI of an object storage."""
    scheme, separator, _ = text.partition("://")
    return bool(separator) and scheme.lower() in SCHEMES


def advice_on_unfinished(place: str) -> str:
    """What only the bucket's owner can do about uploads that were never finished; '' where nothing is to be done."""
    return SCHEMES[object_location(place).scheme].unfinished if is_object(place) else ""


def object_location(text: str) -> ObjectLocation:
    """The location of such a URI; slashes at the end and doubled ones are dropped.

    Raises InvalidRequestError: ``outside-root`` for a ``..`` component, ``bad-path`` for all else that is no such URI.
    """
    found = _URI.fullmatch(text)
    name = found[1].lower() if found else ""
    if found is None or name not in SCHEMES:
        examples = " or ".join(scheme.example for scheme in SCHEMES.values())
        raise InvalidRequestError(f"{shown(text)}: expected {examples}", kind="bad-path")
    scheme, bucket, prefix = SCHEMES[name], found[2], found[3]
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
