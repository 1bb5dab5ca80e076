"""Errors of a Spark Connect server that is named wrongly, or that does not answer."""

import pytest

from statelib.errors import InvalidRequestError, RetryableError
from statelib.spark import is_remote_url
from statelib.spark.session import remote_session


def test_only_urls_of_a_server_are_remote() -> None:
    assert is_remote_url("sc://host:15002/;token=a")
    assert not any(map(is_remote_url, ("", "local[*]", "spark://host:7077", "yarn")))


@pytest.mark.parametrize("url", ["sc://host:15002/path", "sc://host:port", "sc:///;token=a", "sc://host/;token=a=="])
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidRequestError) as refusal:
        remote_session.remote_session(url)
    assert refusal.value.kind == "bad-remote"


def test_a_server_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_session, "ANSWERS_WITHIN_S", 0.2)
    with pytest.raises(RetryableError, match=r"no Spark Connect server answers at 127\.0\.0\.1:1 ") as refusal:
        remote_session.remote_session("sc://127.0.0.1:1")
    assert refusal.value.kind == "remote-unreachable"
