"""What tests of several kinds share: an S3 endpoint on loopback, one for each test process."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from statelib.testing.s3_endpoint import S3Endpoint, s3_endpoint

INTERPRETER = Path(__file__).resolve().parents[1] / ".work" / "endpoint" / "bin" / "python"
"""Made by ``make setup`` from requirements-endpoint.txt."""

_buckets = count()


@pytest.fixture(scope="session")
def running_s3() -> Iterator[S3Endpoint]:
    if not INTERPRETER.exists():
        pytest.skip("no .work/endpoint: make setup")
    with s3_endpoint(INTERPRETER) as endpoint:
        yield endpoint


@pytest.fixture
def s3(running_s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> S3Endpoint:
    """The endpoint, unbroken, and this process set up to use it."""
    for name, value in running_s3.environment.items():
        monkeypatch.setenv(name, value)
    running_s3.break_next()
    return running_s3


@pytest.fixture
def bucket(s3: S3Endpoint) -> str:
    """A new bucket."""
    name = f"bucket-{next(_buckets)}"
    s3.make_bucket(name)
    return name
