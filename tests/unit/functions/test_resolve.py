import sys

import pytest

from statelib.errors import InvalidRequestError
from statelib.functions.user_code.resolve import resolve


def refused(reference: str) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        resolve(reference)
    assert caught.value.kind == "bad-function"
    return str(caught.value)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "statelib_test_functions.py").write_text("LIMIT = 3\ndef update(events, state):\n    return state\n")
    (tmp_path / "statelib_test_broken.py").write_text("import statelib_test_missing_dependency\n")
    yield "statelib_test_functions"
    sys.modules.pop("statelib_test_functions", None)


def test_a_function_is_found_by_its_reference(module):
    assert resolve(f"{module}:update").__name__ == "update"


@pytest.mark.parametrize("reference", ["", "json", "json.loads", "json:", ":loads", "json:a.b", "os;x:y", "a..b:c"])
def test_a_malformed_reference_is_refused(reference):
    assert "expected package.module:name" in refused(reference)


def test_an_unknown_module_is_named():
    message = refused("nowhere_at_all.functions:update")
    assert "'nowhere_at_all.functions:update'" in message
    assert "there is no module 'nowhere_at_all'" in message
    assert "PYTHONPATH" in message


def test_an_unknown_submodule_is_named():
    assert "there is no module 'json.nothing'" in refused("json.nothing:update")


def test_an_unknown_name_suggests_the_right_one(module):
    assert "has no 'updat', did you mean 'update'?" in refused(f"{module}:updat")


def test_a_reference_to_something_other_than_a_function_is_refused(module):
    assert "expected a function, found int" in refused(f"{module}:LIMIT")


def test_an_error_inside_the_module_is_not_hidden(module):
    with pytest.raises(ModuleNotFoundError, match="statelib_test_missing_dependency"):
        resolve("statelib_test_broken:update")
