"""Where the DAG files find the pipeline files and the Spark jobs."""

import os
from pathlib import Path


def pipelines_directory(dag_file: str) -> Path:
    """``STATELIB_PIPELINES``, by default the directory ``pipelines`` beside the DAG file."""
    return Path(os.environ.get("STATELIB_PIPELINES") or Path(dag_file).parent / "pipelines").resolve()


def job(script: str) -> str:
    """Absolute path of a spark-submit entry point: ``jobs/`` lies beside ``plugins/``."""
    return str(Path(__file__).resolve().parents[2] / "jobs" / script)
