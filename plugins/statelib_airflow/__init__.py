"""statelib in Airflow: DAGs for pipeline files, operators and sensors for DAGs of your own, the State page."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statelib_airflow.dags.dag_factory import BrokenPipelineError, check_pipeline_dags, pipeline_dags
    from statelib_airflow.dags.housekeeping_dags import cleanup_dags, verify_dags
    from statelib_airflow.runtime.steps import state_asset

_PUBLIC = {
    "BrokenPipelineError": "statelib_airflow.dags.dag_factory",
    "check_pipeline_dags": "statelib_airflow.dags.dag_factory",
    "cleanup_dags": "statelib_airflow.dags.housekeeping_dags",
    "pipeline_dags": "statelib_airflow.dags.dag_factory",
    "state_asset": "statelib_airflow.runtime.steps",
    "verify_dags": "statelib_airflow.dags.housekeeping_dags",
}

__all__ = ["BrokenPipelineError", "check_pipeline_dags", "cleanup_dags", "pipeline_dags", "state_asset", "verify_dags"]


def __getattr__(name: str) -> Any:
    """Return a public name, loaded at its first use: Airflow imports this package while it starts, and must be able to
    do so before its own modules are complete."""
    if name not in _PUBLIC:
        raise AttributeError(f"module 'statelib_airflow' has no attribute {name!r}")
    return getattr(import_module(_PUBLIC[name]), name)
