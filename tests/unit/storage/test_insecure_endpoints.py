"""Nothing is sent to an ``http:`` endpoint unless the deployment allows it; machines still get their credentials."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError, StatelibError
from statelib.storage.objects.bucket import Bucket
from statelib.storage.objects.clients import ALLOW_HTTP, allows_http
from statelib.storage.retries import IMPATIENT

pytestmark = pytest.mark.slow

AWS = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "a-secret"}
AZURE = {"AZURE_STORAGE_ACCOUNT_NAME": "account", "AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}
EMULATED = {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": "{url}"}
GOOGLE = {"gcs_base_url": "{url}", "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
CASES = [
    ("s3://bucket", {**AWS, "AWS_ENDPOINT_URL": "{url}"}),
    ("s3://bucket", {**AWS, "AWS_ENDPOINT": "{url}"}),
    ("s3://bucket", {**AWS, "AWS_ENDPOINT_URL_S3": "{url}", "AWS_ALLOW_HTTP": "true"}),
    ("az://container", {**AZURE, "AZURE_STORAGE_ENDPOINT": "{url}"}),
    ("az://container", {**AZURE, **EMULATED}),
    ("gs://bucket", {"GOOGLE_SERVICE_ACCOUNT": "{account}"}),
    ("gs://bucket", {"GOOGLE_SERVICE_ACCOUNT": "{account}", "GOOGLE_BASE_URL": "{url}"}),
]


class Endpoint(ThreadingHTTPServer):
    """A server that records its requests and has no objects."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self) -> None:
        self.server.asked.append(f"{self.command} {self.path}")
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_PUT = do_POST = _answer  # noqa: N815 - the base class's names


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    serving = threading.Thread(target=server.serve_forever, daemon=True)
    serving.start()
    yield server
    server.shutdown()
    server.server_close()
    serving.join()


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", ALLOW_HTTP)):
            monkeypatch.delenv(name)


def ask(place: str) -> StatelibError:
    with pytest.raises(StatelibError) as caught:
        Bucket(place, IMPATIENT).read("key", 10)
    return caught.value


@pytest.mark.parametrize(("place", "variables"), CASES)
def test_an_http_endpoint_is_used_only_if_the_deployment_allows_it(
    place: str, variables: dict[str, str], endpoint: Endpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = tmp_path / "account.json"
    account.write_text(json.dumps(GOOGLE).replace("{url}", endpoint.url))
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(url=endpoint.url, account=account))
    refused = ask(place)
    assert refused.kind == "insecure-endpoint"
    assert isinstance(refused, InvalidRequestError)
    assert "STATELIB_ALLOW_HTTP=true" in refused.hint
    assert str(endpoint.server_port) not in str(refused)
    assert endpoint.asked == []
    monkeypatch.setenv(ALLOW_HTTP, "true")
    assert ask(place).kind == "missing-file"
    assert endpoint.asked != []


@pytest.mark.parametrize(
    ("place", "variables"),
    [
        ("s3://bucket", {"AWS_REGION": "us-east-1", "AWS_METADATA_ENDPOINT": "{url}"}),
        ("gs://bucket", {"GCE_METADATA_HOST": "{host}", "GCE_METADATA_IP": "{host}"}),
    ],
)
def test_a_machine_still_gets_its_credentials_over_http(
    place: str, variables: dict[str, str], endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(url=endpoint.url, host=endpoint.url.removeprefix("http://")))
    assert ask(place).kind == "storage-refused", "the answer of this endpoint, which has no credentials"
    assert endpoint.asked != []


def test_the_setting_is_yes_or_no() -> None:
    assert all(allows_http({ALLOW_HTTP: each}) for each in ("true", "1", "Yes"))
    assert not any(allows_http({ALLOW_HTTP: each}) for each in ("false", "0", "no", " "))
    assert not allows_http({})
    with pytest.raises(InvalidRequestError, match=r"STATELIB_ALLOW_HTTP=maybe: expected true or false"):
        allows_http({ALLOW_HTTP: "maybe"})
