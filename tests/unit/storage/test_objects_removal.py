"""Removing objects: only below the roots, in few requests, and as often as one likes."""

import time

import pytest

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.removal import ObjectRemover
from statelib.storage.registry import PLACES
from statelib.storage.retries import IMPATIENT, Retries

pytestmark = pytest.mark.slow

ROOT = "s3://bucket/state"
PATIENT = Retries((0.1, 0.5, 2), time.sleep)
"""The Azure endpoint closes a connection that was not used for five seconds; on a busy machine, a request may just then
be on its way, and gets no answer."""


@pytest.mark.parametrize(
    "uri",
    [ROOT, f"{ROOT}-2/x", "s3://other/state/x", "gs://bucket/state/x", f"{ROOT}/p/../../x", "file:///state/x", "/x"],
)
def test_objects_outside_the_roots_are_never_removed(uri: str) -> None:
    """No request is made: there is no endpoint in this test."""
    remover = PLACES.remover(ROOT)
    for remove in (
        remover.remove_file,
        remover.remove_directory,
        lambda u, r: remover.remove_files([f"{ROOT}/a", u], r),
    ):
        with pytest.raises((InvalidRequestError, UnsupportedError)) as refusal:
            remove(uri, [ROOT, f"{ROOT}/p"])
        assert refusal.value.kind in ("outside-root", "bad-path")
    assert not PLACES.is_below(uri, [ROOT])


def test_a_path_is_below_its_root_and_has_a_parent() -> None:
    assert PLACES.is_below(f"{ROOT}/p/x", ["file:///state", ROOT])
    assert PLACES.is_below("file:///state/x", [ROOT, "/state"])
    assert (PLACES.parent_of(f"{ROOT}/a"), PLACES.parent_of("s3://bucket/a")) == (ROOT, "s3://bucket")
    assert (PLACES.parent_of("file:///a/b"), PLACES.parent_of("file:///a")) == ("file:///a", "file:///")


@pytest.fixture(params=["bucket", "google_bucket", "container"])
def root(request: pytest.FixtureRequest) -> str:
    scheme = {"bucket": "s3", "google_bucket": "gs", "container": "az"}[request.param]
    return f"{scheme}://{request.getfixturevalue(request.param)}/state"


def put(uri: str) -> None:
    scheme, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    Bucket(f"{scheme}://{bucket}", PATIENT).put(key, 1, lambda: iter([b"x"]))


def test_removing_an_object_twice_reports_it_once(root: str) -> None:
    remover = ObjectRemover(PATIENT)
    names = [f"{root}/chk-1/{n}" for n in range(1100)]
    for name in (*names[:5], f"{root}/chk-1/.location", f"{root}/chk-11/x", f"{root}/.statelib-if-none-match"):
        put(name)
    assert remover.list_directories(root) == {f"{root}/chk-1", f"{root}/chk-11"}
    assert not remover.remove_directory(f"{root}/chk-1", [root]), "it is not empty"
    assert (remover.remove_file(names[0], [root]), remover.remove_file(names[0], [root])) == (True, False)
    remover.remove_files(names, [root])
    remover.remove_files(names[:3], [root])
    assert {file.path for file in remover.list_files(root)} == {"chk-11/x"}
    assert remover.remove_directory(f"{root}/chk-1", [root])
    assert not remover.remove_directory(f"{root}/chk-1", [root])
    assert remover.list_directories(root) == {f"{root}/chk-11"}
    assert remover.list_files(f"{root}/nothing") == []


def test_listings_continue_over_several_pages(bucket: str) -> None:
    root = f"s3://{bucket}/many"
    for number in range(1005):
        put(f"{root}/{number}")
    remover = ObjectRemover(IMPATIENT)
    results = [f"{root}/{file.path}" for file in remover.list_files(root)]
    assert len(results) == 1005
    remover.remove_files(results, [root])
    assert remover.list_files(root) == []


def test_the_time_is_read_from_the_storage_and_no_file_is_left(root: str) -> None:
    remover = ObjectRemover(IMPATIENT)
    assert remover.now_ms(root) > 1_600_000_000_000
    assert remover.list_files(root) == []
