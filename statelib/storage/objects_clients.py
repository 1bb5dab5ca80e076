"""The client of each kind of object storage: what differs between them, and nothing else.

Credentials and endpoints come from the environment, which each library reads in its own way. The clients' own
retries are off, because they hide whether a conditional PUT was answered at all.
"""

from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.store import AzureStore, GCSStore, S3Store

from statelib.storage.objects_uris import ObjectLocation

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

ObjectStore = S3Store | GCSStore | AzureStore

_NO_RETRIES: "RetryConfig" = {"max_retries": 0}


def open_client(location: ObjectLocation, timeout_s: float) -> ObjectStore:
    """A client of the location's bucket, whose requests take ``timeout_s`` seconds at most. No request is made."""
    options: ClientConfig = {"allow_http": True, "timeout": timedelta(seconds=timeout_s)}
    if location.scheme == "s3":
        return S3Store(location.bucket, client_options=options, retry_config=_NO_RETRIES)
    if location.scheme == "gs":
        return GCSStore(location.bucket, client_options=options, retry_config=_NO_RETRIES)
    container, _, host = location.bucket.partition("@")
    if not host:
        return AzureStore(container, client_options=options, retry_config=_NO_RETRIES)
    account = host.partition(".")[0]
    return AzureStore(container, account_name=account, client_options=options, retry_config=_NO_RETRIES)
