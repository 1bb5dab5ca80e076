"""Options of the form ``NAME=VALUE``, which may be repeated."""

import pytest

from statelib.cli.pairs import pairs_of
from statelib.errors import InvalidRequestError


def test_a_value_may_contain_equals_signs_and_be_repeated() -> None:
    assert pairs_of("--map", ["a=IF(x=1, 2, 3)", "b=c", "b=c"]) == {"a": "IF(x=1, 2, 3)", "b": "c"}
    assert pairs_of("--option", ["quote="], may_be_empty=True) == {"quote": ""}


@pytest.mark.parametrize("texts", [["a"], ["=b"], ["a="], ["a=b", "a=c"]])
def test_a_pair_that_is_not_clear_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        pairs_of("--map", texts)
    assert caught.value.kind == "bad-mapping"
