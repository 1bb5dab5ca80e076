"""The deployment of a task: the environment describes it, and an Airflow connection may override the environment."""

import logging
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

log = logging.getLogger(__name__)

EXTRA = {
    name: f"STATELIB_{name.upper()}" for name in ("catalog", "storage", "pipelines", "data", "docs", "work", "local")
}
"""The environment variable that each key of a connection's extra overrides."""


class StatelibHook(BaseHook):
    """A deployment of statelib.

    Without a connection id (argument, or ``STATELIB_CONN_ID``) the environment describes it. A connection (of type
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
        """Return the environment variables that the connection sets; none without a connection."""
        if self.statelib_conn_id is None:
            return {}
        return _settings_of(self.get_connection(self.statelib_conn_id))

    async def asettings(self) -> dict[str, str]:
        """Return the same as :meth:`settings`, in the triggerer's event loop."""
        if self.statelib_conn_id is None:
            return {}
        return _settings_of(await self.aget_connection(self.statelib_conn_id))

    def deployment(self) -> "Deployment":
        """Return the deployment. Raise AirflowFailException that names each missing setting."""
        return deployment_of(self.settings())

    def get_conn(self) -> "Deployment":
        """Return the deployment; Airflow's name for :meth:`deployment`."""
        return self.deployment()

    def pipeline(self, pipeline: str) -> "Pipeline":
        """Return a pipeline by its name, or by the path of its file."""
        from statelib.definition.pipeline import load_pipeline

        with failing_fast():
            return load_pipeline(pipeline) if is_path(pipeline) else self.deployment().pipeline(pipeline)


def hook_of_run() -> StatelibHook:
    """Return the hook of the running task: the default arguments of its DAG may name a connection."""
    defaults = get_current_context()["dag"].default_args or {}
    return StatelibHook(defaults.get("statelib_conn_id"))


def is_path(pipeline: str) -> bool:
    """Return whether the text is the path of a pipeline file; a pipeline's name has no slash."""
    return "/" in pipeline


def deployment_of(settings: Mapping[str, str]) -> "Deployment":
    """Return the deployment of the environment, overridden by ``settings``."""
    from statelib.flows.wiring import deployment

    with failing_fast():
        return deployment({**os.environ, **settings})


def _settings_of(connection: "Connection") -> dict[str, str]:
    from statelib.telemetry.secrets import passwords

    extra = connection.extra_dejson
    settings = {variable: str(extra[key]) for key, variable in EXTRA.items() if extra.get(key)}
    own = settings.get("STATELIB_CATALOG") or os.environ.get("STATELIB_CATALOG", "")
    url = _with_login(own, connection.login, connection.password)
    if "STATELIB_CATALOG" in settings or url != own:
        settings["STATELIB_CATALOG"] = url
        if secrets := passwords(url):
            for secret in (url, *secrets):
                mask_secret(secret)
    return settings


def _with_login(url: str, login: str | None, password: str | None) -> str:
    """Return the URL with the connection's login and password in place of its own. SQLite has neither. The URL of
    another database may have no host, such as that of a socket."""
    parts = urlsplit(url)
    if not (login or password) or not parts.scheme:
        return url
    if parts.scheme.startswith("sqlite"):
        log.warning("login and password of the connection are not used: SQLite has neither")
        return url
    user = quote(login, safe="") if login else quote(parts.username or "", safe="")
    secret = f":{quote(password, safe='')}" if password else ""
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{user}{secret}@{host}"))
