"""The deployment that the page shows: that of the tasks, by the environment and the Airflow connection."""

import os

from airflow.providers.common.compat.sdk import AirflowNotFoundException

from statelib.errors import InvalidRequestError
from statelib.flows import wiring
from statelib.flows.wiring import Deployment
from statelib_airflow.hooks import StatelibHook


def deployment() -> Deployment:
    """Return the deployment of the API server's environment, overridden by the connection that ``STATELIB_CONN_ID``
    names. Raises InvalidRequestError (``missing-setting``)."""
    hook = StatelibHook()
    try:
        settings = hook.settings()
    except AirflowNotFoundException:
        raise InvalidRequestError(
            f"the API server cannot read the connection {hook.statelib_conn_id!r}, which STATELIB_CONN_ID names",
            kind="missing-setting",
            hint="add the connection to Airflow, or set the variables of statelib for the API server, too",
        ) from None
    return wiring.deployment({**os.environ, **settings})
