"""What a deployment refuses before it touches anything."""

import pytest

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.flows.wiring import VARIABLES, deployment

WHOLE = dict.fromkeys(VARIABLES, "/srv/x") | {"STATELIB_CATALOG": "sqlite:////srv/catalog.db"}


def test_each_missing_variable_is_named() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        deployment({"STATELIB_DATA": "/srv/data", "STATELIB_DOCS": ""})
    assert caught.value.kind == "missing-setting"
    assert all(name in caught.value.message for name in VARIABLES if name != "STATELIB_DATA")
    assert "STATELIB_DATA" not in caught.value.message


def test_cleanup_is_refused_where_nothing_deletes_yet() -> None:
    assert deployment(WHOLE).remover() is not None
    with pytest.raises(UnsupportedError) as caught:
        deployment(WHOLE | {"STATELIB_STORAGE": "s3://bucket/prefix"}).remover()
    assert caught.value.kind == "no-cleanup"
    assert "s3://bucket/prefix" in caught.value.message
