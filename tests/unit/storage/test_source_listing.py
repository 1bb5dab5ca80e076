"""The files below the path of a source. A file system and a bucket give the same answer."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.uris import object_location
from statelib.storage.registry import PLACES
from statelib.storage.retries import IMPATIENT
from statelib.storage.source_listing import SourceListing, look_at_source

pytestmark = pytest.mark.slow

FILES = ("day-1/a.parquet", "day-1/_SUCCESS", "day-1/p=1/.x.crc", "day-2/_SUCCESS", "day-10/a.parquet", "one.csv")
CASES = [
    ("day-1", True, 1),
    ("day-1/", True, 1),
    ("day-2", True, 0),
    ("day-3", False, 0),
    ("day", False, 0),
    ("one.csv", True, 1),
    ("one.csv/x", False, 0),
    ("day-1/_SUCCESS", True, 1),
    ("day-*", True, 2),
    ("day-?/*.parquet", True, 1),
    ("day-[2-9]/*.parquet", False, 0),
    ("day-{1,10}", True, 2),
    ("day-[!2-9]/*.parquet", True, 1),
    ("day-[^1-9]/*.parquet", False, 0),
    ("*/_SUCCESS", True, 0),
    ("day-1/*", True, 1),
    ("d.y-1*", False, 0),
    ("[[d]ay-1*", True, 2),
    ("day-{1,[1]?}/a*", True, 2),
    ("o{ne,,x}.c{s,}v", True, 1),
]


def put_into(bucket: str) -> Callable[[str], None]:
    location = object_location(bucket)
    return lambda name: Bucket(location.bucket_uri, IMPATIENT).create(location.below(name).key, b"x")


@pytest.mark.parametrize(("path", "exists", "files"), CASES)
def test_a_directory_is_listed_with_its_files(tmp_path: Path, path: str, exists: bool, files: int) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    for root in (str(tmp_path), f"file://{tmp_path}"):
        listing = look_at_source(f"{root}/{path}", PLACES)
        assert (listing.exists, listing.files, listing.newest_ms is not None) == (exists, files, exists)


def test_a_bucket_is_listed_with_its_objects(bucket: str) -> None:
    bucket = f"s3://{bucket}/lake"
    for name in FILES:
        put_into(bucket)(name)
    for path, exists, files in CASES:
        for root in (bucket, bucket.replace("s3:", "s3a:")):
            listing = look_at_source(f"{root}/{path}", PLACES)
            assert (listing.exists, listing.files, listing.newest_ms is not None) == (exists, files, exists), path


def test_a_directory_without_files_exists(tmp_path: Path) -> None:
    assert look_at_source(str(tmp_path), PLACES) == SourceListing(True, 0, None)


def test_the_newest_change_of_all_files_is_reported(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        (tmp_path / f"{number}.csv").write_text("x")
        os.utime(tmp_path / f"{number}.csv", (number, number))
    os.utime(tmp_path / "1.csv", (9, 9))
    assert look_at_source(str(tmp_path), PLACES) == SourceListing(True, 3, 9_000)


@pytest.mark.parametrize("path", ["hdfs://namenode/x", "dbfs:/x", "relative/x", "https://host/x"])
def test_a_source_that_cannot_be_listed_is_refused_by_name(path: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        look_at_source(path, PLACES)
    assert caught.value.kind == "source-not-visible"


def test_a_backslash_takes_a_bracket_as_it_is(tmp_path: Path) -> None:
    for name in ("day-[1]", "day-1"):
        (tmp_path / name).mkdir()
    assert look_at_source(f"{tmp_path}/day-\\[1\\]", PLACES).exists
    assert not look_at_source(f"{tmp_path}/day-\\[2\\]", PLACES).exists


@pytest.mark.parametrize("name", ["day-[1", "day-{1,2", "{a,{b,c}}", "[z-a]"])
def test_wildcards_without_an_end_are_refused_as_spark_refuses_them(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidRequestError, match="wildcards") as caught:
        look_at_source(f"{tmp_path}/{name}", PLACES)
    assert caught.value.kind == "bad-wildcard"


def test_a_path_that_cannot_be_read_is_not_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="too long"):
        look_at_source(f"{tmp_path}/{'x' * 300}", PLACES)
