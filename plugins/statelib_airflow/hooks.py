"""Where a task finds its deployment: in the environment, or in an Airflow connection on top of it."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit, urlunsplit

from airflow.sdk import BaseHook, get_current_context
from airflow.sdk.log import mask_secret

from statelib_airflow.failures import failing_fast

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from statelib.definition.pipeline import Pipeline
    from statelib.flows.wiring import Deployment

EXTRA = {
    name: f"STATELIB_{name.upper()}" for name in ("catalog", "storage", "pipelines", "data", "docs", "work", "local")
}
"""Keys of a connection's extra, and the environment variable that each stands for."""


class StatelibHook(BaseHook):
    """A deployment of statelib.

    Without a connection id (argument, or ``STATELIB_CONN_ID``) it is what the environment says. A connection (of type
    ``statelib`` or ``generic``) overrides the environment, variable by variable: its extra is JSON with the keys of
    :data:`EXTRA`; login and password, if there are any, go into the URL of the catalog. Airflow masks the password
    and the whole URL wherever a task logs.
    """

    conn_name_attr = "statelib_conn_id"
    default_conn_name = "statelib_default"
    conn_type = "statelib"
    hook_name = "statelib"

    def __init__(self, statelib_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.statelib_conn_id = statelib_conn_id or os.environ.get("STATELIB_CONN_ID") or None

    def settings(self) -> dict[str, str]:
        """The variables that the connection sets, none without one: a Spark driver gets them too."""
        if self.statelib_conn_id is None:
            return {}
        return _settings_of(self.get_connection(self.statelib_conn_id))

    async def asettings(self) -> dict[str, str]:
        """As :meth:`settings`, in the triggerer's event loop."""
        if self.statelib_conn_id is None:
            return {}
        return _settings_of(await self.aget_connection(self.statelib_conn_id))

    def deployment(self) -> "Deployment":
        """Raises AirflowFailException naming each setting that is missing."""
        return deployment_of(self.settings())

    def get_conn(self) -> "Deployment":
        return self.deployment()

    def pipeline(self, pipeline: str) -> "Pipeline":
        """A pipeline by its name, or by the path of its file."""
        from statelib.definition.pipeline import load_pipeline

        with failing_fast():
            return load_pipeline(pipeline) if is_path(pipeline) else self.deployment().pipeline(pipeline)


def hook_of_run() -> StatelibHook:
    """Return the hook of the running task: the default arguments of its DAG may name a connection."""
    defaults = get_current_context()["dag"].default_args or {}
    return StatelibHook(defaults.get("statelib_conn_id"))


def is_path(pipeline: str) -> bool:
    """Names of pipelines have no slash."""
    return "/" in pipeline


def deployment_of(settings: Mapping[str, str]) -> "Deployment":
    """The deployment of the environment, overridden by ``settings``."""
    from statelib.flows.wiring import deployment

    with failing_fast():
        return deployment({**os.environ, **settings})


def _settings_of(connection: "Connection") -> dict[str, str]:
    from statelib.telemetry.secrets import passwords

    extra = connection.extra_dejson
    settings = {variable: str(extra[key]) for key, variable in EXTRA.items() if extra.get(key)}
    if "STATELIB_CATALOG" in settings:
        url = _with_login(settings["STATELIB_CATALOG"], connection.login, connection.password)
        settings["STATELIB_CATALOG"] = url
        if found := passwords(url):
            for secret in (url, *found):
                mask_secret(secret)
    return settings


def _with_login(url: str, login: str | None, password: str | None) -> str:
    """The URL with the connection's login and password in place of its own."""
    parts = urlsplit(url)
    if not (login or password) or not parts.hostname:
        return url
    user = quote(login, safe="") if login else quote(parts.username or "", safe="")
    secret = f":{quote(password, safe='')}" if password else ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}{secret}@{host}"))
