"""Paths as text: what is accepted, what they become, what is refused."""

import pytest

from statelib.errors import InvalidRequestError, StatelibError, UnsupportedError
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle, RelativeFileStateHandle
from statelib.storage.uris import (
    MAX_PATH_LENGTH,
    absolute_uri,
    file_handle,
    local_path,
    parts_below,
    relative_parts,
    to_uri,
)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/a/b", "/a/b"),
        ("/", "/"),
        ("file:/a/b", "/a/b"),
        ("FILE:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("file://localhost/a/b", "/a/b"),
        ("//a//./b/", "/a/b"),
        ("/a b/%2e%2e/ü:x", "/a b/%2e%2e/ü:x"),
        ("/a/...", "/a/..."),
    ],
)
def test_local_paths_and_file_uris_are_accepted(text: str, path: str) -> None:
    assert local_path(text) == path
    assert to_uri(text) == f"file://{path}"
    assert to_uri(to_uri(text)) == to_uri(text)


@pytest.mark.parametrize(
    ("text", "error", "kind"),
    [
        ("s3://bucket/x", UnsupportedError, "unknown-scheme"),
        ("hdfs:/x", UnsupportedError, "unknown-scheme"),
        ("http://169.254.169.254/latest", UnsupportedError, "unknown-scheme"),
        ("mock:x", UnsupportedError, "unknown-scheme"),
        ("file://host/x", InvalidRequestError, "bad-path"),
        ("file:x", InvalidRequestError, "bad-path"),
        ("file:", InvalidRequestError, "bad-path"),
        ("file://", InvalidRequestError, "bad-path"),
        ("", InvalidRequestError, "bad-path"),
        ("a/b", InvalidRequestError, "bad-path"),
        ("/a\0b", InvalidRequestError, "bad-path"),
        ("/" + "x" * MAX_PATH_LENGTH, InvalidRequestError, "bad-path"),
        ("/a/../b", InvalidRequestError, "outside-root"),
        ("file:///..", InvalidRequestError, "outside-root"),
    ],
)
def test_other_paths_are_refused(text: str, error: type[StatelibError], kind: str) -> None:
    with pytest.raises(error) as caught:
        local_path(text)
    assert caught.value.kind == kind
    assert len(str(caught.value)) < 500


def test_relative_paths_are_divided_into_components() -> None:
    assert relative_parts("a") == ("a",)
    assert relative_parts("a/b c/%2e%2e") == ("a", "b c", "%2e%2e")
    assert relative_parts("..a/b..") == ("..a", "b..")
    assert relative_parts("file:x") == ("file:x",)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("/etc/passwd", "outside-root"),
        ("..", "outside-root"),
        ("../x", "outside-root"),
        ("a/../../x", "outside-root"),
        ("a/..", "outside-root"),
        ("", "bad-path"),
        (".", "bad-path"),
        ("a//b", "bad-path"),
        ("a/", "bad-path"),
        ("./a", "bad-path"),
        ("a\0", "bad-path"),
        ("x" * (MAX_PATH_LENGTH + 1), "bad-path"),
        ("file:///etc/passwd", "bad-path"),
    ],
)
def test_unsafe_relative_paths_are_refused(text: str, kind: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        relative_parts(text)
    assert caught.value.kind == kind


def test_parts_below_compares_whole_components() -> None:
    assert parts_below("/a/b/c", "/a") == ("b", "c")
    assert parts_below("/a", "/") == ("a",)
    assert parts_below("/ab/c", "/a") is None
    assert parts_below("/a", "/a") is None


def test_absolute_uris_are_built_from_directory_and_handle() -> None:
    assert absolute_uri("file:/r/chk-1", RelativeFileStateHandle("x", 1)) == "file:///r/chk-1/x"
    assert absolute_uri("/r/chk-1/", RelativeFileStateHandle("x/y", 1)) == "file:///r/chk-1/x/y"
    assert absolute_uri("/r", FileStateHandle("file:/s/x", 1)) == "file:///s/x"
    with pytest.raises(InvalidRequestError) as caught:
        absolute_uri("/r", ByteStreamStateHandle("x", b""))
    assert caught.value.kind == "inline-handle"
    with pytest.raises(InvalidRequestError):
        absolute_uri("/r", RelativeFileStateHandle("../x", 1))


def test_the_path_of_a_handle_gives_the_handle_back() -> None:
    for handle in (FileStateHandle("file:///a/b", 3), FileStateHandle("/a/b", 3), RelativeFileStateHandle("a/b", 3)):
        assert file_handle(handle.path, 3) == handle
    assert file_handle("../a", 1) == RelativeFileStateHandle("../a", 1), "refused by whoever opens it"
