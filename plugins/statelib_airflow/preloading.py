"""Importing the modules of statelib's tasks once, in the processes of Airflow that fork for tasks and for DAG files.

Otherwise each task imports them anew, which is most of the processor time of a short one."""

import logging
import sys
from importlib import import_module

log = logging.getLogger(__name__)

FORKING = ("scheduler", "dag-processor", "celery")
"""The commands of ``airflow`` whose processes fork. The scheduler does so with the LocalExecutor."""
_MODULES = (
    "statelib_airflow.dags.dag_factory",
    "statelib_airflow.dags.housekeeping_dags",
    "statelib.flows.checkpoint.steps",
    "statelib.flows.checkpoint.publishing",
    "statelib.flows.cleanup.garbage",
    "statelib.flows.cleanup.retention",
    "statelib.flows.restore.steps",
    "statelib.flows.views.metrics",
    "statelib_jobs",
)


def preload() -> None:
    """Import what statelib's DAGs and tasks use, if this is a process of Airflow that forks.

    Call it in ``airflow_local_settings.py``, which every process of Airflow imports when it starts::

        from statelib_airflow.preloading import preload

        preload()

    A module that cannot be imported is logged, and does not keep Airflow from starting."""
    if len(sys.argv) < 2 or sys.argv[1] not in FORKING:
        return
    for module in _MODULES:
        try:
            import_module(module)
        except ImportError as error:
            log.warning("%s is not preloaded: %s", module, error)
