"""The deployment that an Airflow connection describes: URLs without a host, and the page in the API server."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.wiring import Deployment
from tests.integration.shop import environment
from tests.support.worlds import new_deployment


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    deployment = new_deployment(tmp_path, tmp_path)
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "home"))
    for name, value in environment(deployment).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("STATELIB_CONN_ID", "state")
    return deployment


def connect(monkeypatch: pytest.MonkeyPatch, **extra: str) -> None:
    sent = {"conn_type": "generic", "login": "me", "password": "p@ss", "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_STATE", json.dumps(sent))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql+psycopg:///x", "postgresql+psycopg://me:p%40ss@/x"),
        ("postgresql+psycopg:///x?host=/run/db", "postgresql+psycopg://me:p%40ss@/x?host=/run/db"),
        ("sqlite:////srv/x", "sqlite:////srv/x"),
    ],
)
def test_login_and_password_go_into_a_url_without_a_host(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, url: str, expected: str
) -> None:
    from statelib_airflow.hooks import StatelibHook

    connect(monkeypatch, catalog=url)
    assert StatelibHook().deployment() == replace(deployment, catalog_url=expected)


def test_the_page_shows_the_deployment_of_the_connection(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statelib_airflow.api.settings import deployment as shown

    monkeypatch.delenv("STATELIB_STORAGE")
    with pytest.raises(InvalidRequestError, match="cannot read the connection 'state'") as refused:
        shown()
    assert refused.value.kind == "missing-setting"
    connect(monkeypatch, storage="s3://bucket/state")
    assert shown() == replace(deployment, storage_root="s3://bucket/state")
