"""The errors of its pipelines that the job of a group prints."""

import pytest
from statelib_jobs.group import named_errors

from statelib.errors import RetryableError


def test_an_error_of_a_pipeline_is_printed_without_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "p4ssw0rd")
    error = RetryableError("jdbc:x://db?user=me&password=hunter22: no answer to p4ssw0rd", kind="no-answer")
    assert named_errors({"shop": error}) == {"shop": "no-answer: jdbc:x://db?user=me&password=*** no answer to ***"}
