"""The paths of the Spark jobs that operators submit."""

from importlib.resources import files


def job(script: str) -> str:
    """Return the absolute path of one of the spark-submit entry points of ``statelib_jobs``."""
    return str(files("statelib_jobs") / script)
