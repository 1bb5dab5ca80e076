"""The clients of the kinds of object storage.

Credentials and endpoints come from the environment, which each client reads in its own way. The clients' own retries
are off, because they hide whether a conditional PUT was answered at all.

A client keeps its connections and its temporary credentials, and making one takes 9 ms. Therefore each process has one
client per bucket, and makes a new one only if the environment changes.
"""

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from statelib.errors import InvalidRequestError
from statelib.storage.objects.uris import ObjectLocation
from statelib.storage.retries import Retries

if TYPE_CHECKING:
    from obstore.store import AzureStore, ClientConfig, GCSStore, RetryConfig, S3Store

    ObjectStore = S3Store | GCSStore | AzureStore

_NO_RETRIES: "RetryConfig" = {"max_retries": 0}
_CLIENTS_AT_ONCE = 16
ALLOW_HTTP = "STATELIB_ALLOW_HTTP"
"""The setting that allows endpoints that are not ``https:``. The metadata addresses of clouds, which give machines
their credentials, need no permission: they are ``http:`` by design."""
_EMULATED = ("AZURE_STORAGE_USE_EMULATOR", "AZURE_USE_EMULATOR")
"""The variables that let Azure's client use an ``http:`` endpoint, even if ``http:`` is not allowed."""
_YES_OR_NO = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False, "": False}


def open_client(location: ObjectLocation, timeout_s: float) -> "ObjectStore":
    """Return a client of the location's bucket. Its requests take at most ``timeout_s`` seconds. No request is made.

    Raises InvalidRequestError (``bad-setting``, ``insecure-endpoint``)."""
    return _client(location.scheme, location.bucket, timeout_s, frozenset(os.environ.items()))


def allows_http(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether endpoints may be ``http:``, which is the setting :data:`ALLOW_HTTP`.

    Raises InvalidRequestError (``bad-setting``) if the setting means neither yes nor no."""
    setting = environ.get(ALLOW_HTTP, "").strip().lower()
    if setting not in _YES_OR_NO:
        raise InvalidRequestError(f"{ALLOW_HTTP}={setting}: expected true or false", kind="bad-setting")
    return _YES_OR_NO[setting]


def text_options(retries: Retries) -> dict[str, str]:
    """Return the settings of a client as texts, for a library that brings its own client. That client reads the same
    environment, except for the setting :data:`ALLOW_HTTP`."""
    return {
        "allow_http": str(allows_http()).lower(),
        "timeout": f"{retries.request_timeout_s:g}s",
        "max_retries": str(len(retries.delays_s)),
    }


def insecure_endpoint(what: str) -> InvalidRequestError:
    """Return the error of a request that was not made because its endpoint is ``http:``. It does not contain the
    endpoint."""
    return InvalidRequestError(
        f"{what}: the endpoint is http: and not https:, credentials and state would be sent in the clear",
        kind="insecure-endpoint",
        hint=f"name an https: endpoint, or where the network is trusted set {ALLOW_HTTP}=true, on executors too",
    )


@lru_cache(_CLIENTS_AT_ONCE)
def _client(scheme: str, bucket: str, timeout_s: float, _environment: frozenset[tuple[str, str]]) -> "ObjectStore":
    from obstore.store import AzureStore, GCSStore, S3Store  # comes with the extra "objects"

    allowed = allows_http()
    options: ClientConfig = {"allow_http": allowed, "timeout": timedelta(seconds=timeout_s)}
    if scheme == "s3":
        return S3Store(bucket, client_options=options, retry_config=_NO_RETRIES)
    if scheme == "gs":
        return GCSStore(bucket, client_options=options, retry_config=_NO_RETRIES)
    if not allowed and any(os.environ.get(name, "").lower() in ("true", "1") for name in _EMULATED):
        raise insecure_endpoint(f"{scheme}://{bucket}")
    container, _, host = bucket.partition("@")
    if not host:
        return AzureStore(container, client_options=options, retry_config=_NO_RETRIES)
    account = host.partition(".")[0]
    return AzureStore(container, account_name=account, client_options=options, retry_config=_NO_RETRIES)
