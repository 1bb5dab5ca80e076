"""The login of a statelib connection, and the URL of the catalog that it belongs to."""

import json

import pytest
from statelib_airflow.hooks import StatelibHook


def test_a_login_is_that_of_the_catalog_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATELIB_CATALOG", "postgresql+psycopg://db:5432/x")
    monkeypatch.setenv(
        "AIRFLOW_CONN_STATE", json.dumps({"conn_type": "generic", "login": "me", "password": "p@ssword"})
    )
    assert StatelibHook("state").settings() == {"STATELIB_CATALOG": "postgresql+psycopg://me:p%40ssword@db:5432/x"}


def test_a_connection_without_a_login_leaves_the_catalog_to_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATELIB_CATALOG", "postgresql+psycopg://me@db:5432/x")
    extra = json.dumps({"storage": "s3://bucket/state"})
    monkeypatch.setenv("AIRFLOW_CONN_STATE", json.dumps({"conn_type": "generic", "extra": extra}))
    assert StatelibHook("state").settings() == {"STATELIB_STORAGE": "s3://bucket/state"}
