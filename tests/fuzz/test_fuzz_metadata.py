"""Damaged metadata, manifests and references."""

import pytest

from tests.fuzz.running import TIMEOUT_S, assert_no_findings


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize(
    ("target", "rounds"),
    [
        ("metadata", 5000),
        ("manifest-files", 1500),
        ("manifest-bodies", 3000),
        ("manifest-values", 3000),
        ("references", 2000),
        ("local-index", 1500),
    ],
)
def test_damaged_metadata_are_refused_or_read(target: str, rounds: int) -> None:
    assert_no_findings(target, rounds)
