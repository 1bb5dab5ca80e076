"""The meaning of ``--relocate``, for paths with any characters."""

import pytest

from statelib.cli.named_snapshots import moves_of
from statelib.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("file:///a=/b", "file:///a", "/b"),
        ("file:///a/dt=1/x=/b/dt=2", "file:///a/dt=1/x", "/b/dt=2"),
        ("s3a://b/x=s3://c/y=1", "s3a://b/x", "s3://c/y=1"),
        ("/a=here/b", "/a", "here/b"),
        ("/a=../b", "/a", "../b"),
    ],
)
def test_old_and_new_path_are_divided_at_the_equals_sign_before_an_absolute_place(
    text: str, old: str, new: str
) -> None:
    assert moves_of([text, text]) == {old: new}


@pytest.mark.parametrize("texts", [["/a"], ["=/b"], ["/a="], ["/a=/b=/c"], ["/a=b=c"], ["/a=/b", "/a=/c"]])
def test_an_ambiguous_relocation_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        moves_of(texts)
    assert caught.value.kind == "bad-relocation"
