"""Operator ids against ids that Flink printed."""

import pytest

from statelib.formats.metadata.operator_id import operator_id


@pytest.mark.parametrize(
    ("uid", "expected"),
    [
        ("keyed", "e7beec23fd9f6ed5e1b8395129d43728"),
        ("source", "e5a72f353fc1e6bbf3bd96a41384998c"),
        ("sink-keyed", "bb6cc03a24f923a29ff01b3526f4ad0b"),
        ("opstate", "21991e99748be05b56fddb2033c0ff3b"),
        ("broadcast", "cd609d6d6e317ffa5c3a045fcad5ecc9"),
        ("sink-broadcast", "d68f2f683e295a7d99714276a8761dd3"),
    ],
)
def test_ids_are_those_that_flink_computes(uid: str, expected: str) -> None:
    assert operator_id(uid).hex() == expected


def test_texts_of_every_length_give_different_ids() -> None:
    ids = {operator_id("x" * length) for length in range(50)}
    assert len(ids) == 50
    assert all(len(each) == 16 for each in ids)
    assert operator_id("") == bytes(16)


def test_a_uid_is_hashed_as_utf8() -> None:
    assert operator_id("é") != operator_id("e")
