"""References as bytes: what workers are shipped."""

import pytest

from statelib.errors import InvalidRequestError
from statelib.storage.ports.views import DEFAULT_REFERENCE, StorageReference
from statelib.storage.references import decode_reference, encode_reference

MINE = StorageReference("file:///srv/mine/savepoint-tours-ä-7")


@pytest.mark.parametrize("reference", [MINE, StorageReference("s3://bucket/x"), DEFAULT_REFERENCE])
def test_a_reference_is_read_back(reference: StorageReference) -> None:
    assert decode_reference(encode_reference(reference)) == reference


def test_the_default_reference_is_empty_and_others_have_flinks_mark() -> None:
    assert encode_reference(DEFAULT_REFERENCE) == encode_reference(MINE, default=MINE) == b""
    assert encode_reference(MINE) == bytes.fromhex("055f3f18") + MINE.directory.encode()


@pytest.mark.parametrize("data", [b"file:///srv", b"\x05", b"\x05\x5f\x3f\x18", b"\x05\x5f\x3f\x18\xff\xfe", b"\0"])
def test_bytes_that_are_no_reference_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        decode_reference(data)
    assert caught.value.kind == "bad-reference"
