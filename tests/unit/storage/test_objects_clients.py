"""One client serves a process, until the environment that it was made of changes."""

import pytest

from statelib.storage.objects.clients import open_client
from statelib.storage.objects.uris import object_location


def test_a_process_has_one_client_per_bucket() -> None:
    client = open_client(object_location("s3://bucket/here"), 60.0)
    assert open_client(object_location("s3://bucket/there"), 60.0) is client
    assert open_client(object_location("s3://another/here"), 60.0) is not client
    assert open_client(object_location("gs://bucket/here"), 60.0) is not client


def test_a_client_has_the_requested_time_limit() -> None:
    hurried = open_client(object_location("s3://bucket"), 3.0)
    patient = open_client(object_location("s3://bucket"), 60.0)
    assert [client.client_options["timeout"] for client in (hurried, patient)] == ["3s", "1m"]


def test_a_changed_environment_gets_a_new_client(monkeypatch: pytest.MonkeyPatch) -> None:
    location = object_location("s3://bucket")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    first = open_client(location, 60.0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:2")
    assert open_client(location, 60.0) is not first
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert open_client(location, 60.0) is first
