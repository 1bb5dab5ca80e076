"""Where objects lie, as text: ``s3://bucket/prefix``, parsed without asking anybody.

As with ``file:`` URIs nothing is percent-encoded. A URI holds no credentials and no endpoint: both
come from the environment, and text that looks like them is refused without being repeated.
"""

import re
from dataclasses import dataclass

from statelib.errors import InvalidRequestError
from statelib.storage.uris import relative_parts, shown

SCHEME = "s3://"
MAX_KEY_BYTES = 1024

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class S3Location:
    """A bucket and the components of a key or prefix in it."""

    bucket: str
    parts: tuple[str, ...]

    @property
    def uri(self) -> str:
        return SCHEME + "/".join((self.bucket, *self.parts))

    @property
    def key(self) -> str:
        return "/".join(self.parts)

    def below(self, *parts: str) -> "S3Location":
        """Raises InvalidRequestError (``bad-path``) for a key longer than S3 allows."""
        found = S3Location(self.bucket, (*self.parts, *parts))
        if len(found.key.encode()) > MAX_KEY_BYTES:
            raise InvalidRequestError(
                f"{shown(found.uri)}: expected a key of at most {MAX_KEY_BYTES} bytes", kind="bad-path"
            )
        return found

    def holds(self, other: "S3Location") -> bool:
        """Whether ``other`` lies below this prefix."""
        length = len(self.parts)
        return self.bucket == other.bucket and len(other.parts) > length and other.parts[:length] == self.parts


def is_s3(text: str) -> bool:
    return text[: len(SCHEME)].lower() == SCHEME


def s3_location(text: str) -> S3Location:
    """The location of ``s3://bucket[/prefix]``; slashes at the end and doubled ones are dropped.

    Raises InvalidRequestError: ``outside-root`` for a ``..`` component, ``bad-path`` for all else that is no such URI.
    """
    if not is_s3(text):
        raise InvalidRequestError(f"{shown(text)}: expected s3://bucket/prefix", kind="bad-path")
    bucket, _, prefix = text[len(SCHEME) :].partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise InvalidRequestError(
            "s3:// URI: expected the name of a bucket and nothing else before the first slash",
            kind="bad-path",
            hint="credentials and endpoint belong in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_ENDPOINT_URL",
        )
    if "?" in prefix or "#" in prefix or not prefix.isprintable():
        raise InvalidRequestError(
            f"s3:// URI in bucket {bucket}: expected printable text without '?' and '#'", kind="bad-path"
        )
    parts = [part for part in prefix.split("/") if part not in ("", ".")]
    return S3Location(bucket, ()).below(*(relative_parts("/".join(parts)) if parts else ()))
