"""The end of the first record of a text."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statelib.spark.events.joined_records import end_of_record

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet="ab{}[]'\\\"\n "),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(alphabet="k{}\"'"), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(st.text(alphabet="k{}\"'"), VALUES, max_size=3) | st.lists(VALUES, max_size=3)


@given(RECORDS, st.sampled_from(["", " ", "\n"]), RECORDS)
def test_the_end_of_a_record_is_before_the_next_one(first: object, between: str, second: object) -> None:
    text = json.dumps(first)
    assert end_of_record(text) == len(text)
    assert end_of_record(text + between + json.dumps(second)) == len(text)


@pytest.mark.parametrize("text", ["", '{"a": "cut }', "{'a': '}', 'b': [1}", "null", '{"a": {"b": 1}'])
def test_a_text_without_a_whole_record_has_no_end(text: str) -> None:
    assert end_of_record(text) == len(text)


def test_texts_may_be_in_single_quotes() -> None:
    assert end_of_record("{'a': '}', b: '\\'}'} {'a': 1}") == len("{'a': '}', b: '\\'}'}")
