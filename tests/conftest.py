"""Fixtures that tests of several kinds share, one for each test process: endpoints of object storages on loopback, and
Spark."""

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from demo.spark_start import fast_start
from tests.support.azure_endpoint import AzureEndpoint, azure_endpoint
from tests.support.extent import TEST_ALL, examples
from tests.support.gcs_endpoint import GoogleEndpoint, google_endpoint
from tests.support.s3_endpoint import S3Endpoint, s3_endpoint
from tests.support.worlds import CHECKOUT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTERPRETER = Path(__file__).resolve().parents[1] / ".work" / "endpoint" / "bin" / "python"
"""The interpreter of the environment that ``make setup`` makes from requirements/endpoint.txt."""
AZURITE = INTERPRETER.parents[2] / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
"""The program that ``make setup`` installs from azurite/package-lock.json, if there is npm."""

_buckets = count()

# More than a hundred JVMs are started, by this process and its children. With archived classes each costs a third.
os.environ |= {**fast_start(), **os.environ}

# There is no deadline: the time of an example depends on the machine. The examples of `make test` are always the same,
# so that it judges the change; `make test-all` tries new ones.
settings.register_profile("statelib", max_examples=examples(100), deadline=None, derandomize=not TEST_ALL)
settings.load_profile("statelib")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the files by their timeouts, the longest first, so that none is left to one worker at the end."""
    longest: dict[Path, float] = {}
    for item in items:
        timeout = item.get_closest_marker("timeout")
        longest[item.path] = max(longest.get(item.path, 0), timeout.args[0] if timeout else 0)
    items.sort(key=lambda item: -longest[item.path])


def pytest_collection_finish() -> None:
    """Exclude the collected tests and modules from garbage collection. They stay until the end, and to examine them
    again and again takes a quarter of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


@pytest.fixture(scope="session")
def running_s3() -> Iterator[S3Endpoint]:
    if not INTERPRETER.exists():
        pytest.skip("no .work/endpoint: make setup")
    with s3_endpoint(INTERPRETER) as endpoint:
        yield endpoint


@pytest.fixture
def s3(running_s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Endpoint]:
    """Yield the endpoint without faults, after setting up this process to use it. Faults that a test leaves are taken
    away after it, because fixtures of whole modules use the endpoint as it is."""
    for name, value in running_s3.environment.items():
        monkeypatch.setenv(name, value)
    running_s3.break_next()
    yield running_s3
    running_s3.break_next()


@pytest.fixture
def bucket(s3: S3Endpoint) -> str:
    """Return the name of a new bucket."""
    name = f"bucket-{next(_buckets)}"
    s3.make_bucket(name)
    return name


@pytest.fixture(scope="session")
def running_azure() -> Iterator[AzureEndpoint]:
    if not AZURITE.exists() or shutil.which("node") is None:
        pytest.skip("no Azurite in .work/azurite: install Node.js with npm, then make setup")
    with azure_endpoint(AZURITE) as endpoint:
        yield endpoint


@pytest.fixture
def container(running_azure: AzureEndpoint, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URI of a new container of Azure, after setting up this process to use it."""
    for name, value in running_azure.environment.items():
        monkeypatch.setenv(name, value)
    name = f"container-{next(_buckets)}"
    running_azure.make_container(name)
    return name


@pytest.fixture(scope="session")
def running_google(running_s3: S3Endpoint, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleEndpoint]:
    with google_endpoint(running_s3, tmp_path_factory.mktemp("google")) as endpoint:
        yield endpoint


@pytest.fixture
def google_bucket(running_google: GoogleEndpoint, bucket: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a new bucket, after setting up this process to use it as one of Google Cloud Storage."""
    for name, value in running_google.environment.items():
        monkeypatch.setenv(name, value)
    return bucket


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    os.environ["PYTHONPATH"] = str(CHECKOUT)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.python.daemon.module", "statelib.spark.session.daemon")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.adaptive.coalescePartitions.enabled", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
