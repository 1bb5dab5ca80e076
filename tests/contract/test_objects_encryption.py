"""Encryption by the storage with the user's own key: every request that creates an object requires it."""

import urllib.request
from collections.abc import Iterator

import pytest

from statelib.storage.objects.bucket import PART_BYTES, Bucket
from statelib.storage.retries import IMPATIENT
from tests.support.s3_endpoint import SIGNED, S3Endpoint

KEY = "arn:aws:kms:us-east-1:000000000000:key/11111111-2222-3333-4444-555555555555"
LARGE = 2 * PART_BYTES + 1


@pytest.fixture
def bucket(s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    s3.make_bucket("encrypted")
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_SERVER_SIDE_ENCRYPTION", "aws:kms")
    monkeypatch.setenv("AWS_SSE_KMS_KEY_ID", KEY)
    return Bucket("s3://encrypted", IMPATIENT)


def encryption(s3: S3Endpoint, key: str) -> tuple[str | None, str | None]:
    """Return the encryption and the key that the storage reports for an object."""
    request = urllib.request.Request(f"{s3.direct_url}/encrypted/{key}", headers=SIGNED, method="HEAD")
    with urllib.request.urlopen(request, timeout=30) as answer:
        headers = answer.headers
        return (
            headers["x-amz-server-side-encryption"],
            headers["x-amz-server-side-encryption-aws-kms-key-id"],
        )


def zeros(size_bytes: int) -> Iterator[bytes]:
    for start in range(0, size_bytes, PART_BYTES):
        yield bytes(min(PART_BYTES, size_bytes - start))


def test_every_way_to_create_an_object_requests_encryption(bucket: Bucket, s3: S3Endpoint) -> None:
    bucket.create("published", b"metadata")
    bucket.put("small", 10, lambda: zeros(10))
    bucket.put("large", LARGE, lambda: zeros(LARGE))
    bucket.copy("small", "copied", 10)
    assert {key: encryption(s3, key) for key in ("published", "small", "large", "copied")} == dict.fromkeys(
        ("published", "small", "large", "copied"), ("aws:kms", KEY)
    )
