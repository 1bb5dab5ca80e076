"""Where the DAG files find the pipeline files and the Spark jobs."""

import os
from importlib.resources import files
from pathlib import Path


def pipelines_directory(dag_file: str) -> Path:
    """``STATELIB_PIPELINES``, by default the directory ``pipelines`` beside the DAG file."""
    return Path(os.environ.get("STATELIB_PIPELINES") or Path(dag_file).parent / "pipelines").resolve()


def job(script: str) -> str:
    """Return the absolute path of one of the spark-submit entry points of ``statelib_jobs``."""
    return str(files("statelib_jobs") / script)
