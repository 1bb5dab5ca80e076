"""One client serves a process, until the environment that it was made of changes."""

import pytest

from statelib.storage.objects.clients import open_client
from statelib.storage.objects.uris import object_location


def test_one_client_for_all_who_ask_for_a_bucket() -> None:
    client = open_client(object_location("s3://bucket/here"), 60.0)
    assert open_client(object_location("s3://bucket/there"), 60.0) is client
    assert open_client(object_location("s3://another/here"), 60.0) is not client
    assert open_client(object_location("gs://bucket/here"), 60.0) is not client


def test_its_time_limit_is_the_one_that_was_asked_for() -> None:
    hurried = open_client(object_location("s3://bucket"), 3.0)
    patient = open_client(object_location("s3://bucket"), 60.0)
    assert [client.client_options["timeout"] for client in (hurried, patient)] == ["3s", "1m"]


def test_a_changed_environment_needs_another_client(monkeypatch: pytest.MonkeyPatch) -> None:
    location = object_location("s3://bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    first = open_client(location, 60.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")
    assert open_client(location, 60.0) is not first
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert open_client(location, 60.0) is first
