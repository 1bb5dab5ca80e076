"""The client of each kind of object storage: what differs between them, and nothing else.

Credentials and endpoints come from the environment, which each library reads in its own way. The clients' own
retries are off, because they hide whether a conditional PUT was answered at all.

A client keeps its connections, and credentials that it was given for a while; to make one takes 9 ms. So one serves
whoever asks for its bucket in this process, for as long as the environment stays what it was.
"""

import os
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from obstore.store import AzureStore, GCSStore, S3Store

from statelib.storage.objects_uris import ObjectLocation

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

ObjectStore = S3Store | GCSStore | AzureStore

_NO_RETRIES: "RetryConfig" = {"max_retries": 0}
_CLIENTS_AT_ONCE = 16


def open_client(location: ObjectLocation, timeout_s: float) -> ObjectStore:
    """A client of the location's bucket, whose requests take ``timeout_s`` seconds at most. No request is made."""
    return _client(location.scheme, location.bucket, timeout_s, frozenset(os.environ.items()))


@lru_cache(_CLIENTS_AT_ONCE)
def _client(scheme: str, bucket: str, timeout_s: float, _environment: frozenset[tuple[str, str]]) -> ObjectStore:
    options: ClientConfig = {"allow_http": True, "timeout": timedelta(seconds=timeout_s)}
    if scheme == "s3":
        return S3Store(bucket, client_options=options, retry_config=_NO_RETRIES)
    if scheme == "gs":
        return GCSStore(bucket, client_options=options, retry_config=_NO_RETRIES)
    container, _, host = bucket.partition("@")
    if not host:
        return AzureStore(container, client_options=options, retry_config=_NO_RETRIES)
    account = host.partition(".")[0]
    return AzureStore(container, account_name=account, client_options=options, retry_config=_NO_RETRIES)
