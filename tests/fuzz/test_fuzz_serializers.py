"""Damaged descriptions of types: headers, serializer snapshots, Java objects, texts."""

import pytest

from tests.fuzz.running import TIMEOUT_S, assert_no_findings


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        ("headers", 5000),
        ("serializer-snapshots", 5000),
        ("java-objects", 5000),
        ("type-texts", 4000),
    ],
)
def test_damaged_descriptions_of_types_are_refused_or_read(target: str, rounds: int) -> None:
    assert_no_findings(target, rounds)
