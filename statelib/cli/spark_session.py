"""The Spark session of a command: quiet, on this machine unless a master is named, with statelib and its user's code
importable."""

import os
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.extras import require, require_one_pyspark
from statelib.spark import REMOTE, is_remote_url

_ARGUMENTS, _SHELL = "PYSPARK_SUBMIT_ARGS", "pyspark-shell"
_QUIET = ("spark.ui.enabled=false", "spark.ui.showConsoleProgress=false")


def require_for_runs(pipelines: Iterable[Pipeline]) -> None:
    """Raise NotFoundError (``missing-extra``) if an extra is not installed that runs of the pipelines need: Spark, and
    Great Expectations if a file has expectations."""
    require("spark")
    if any(pipeline.checks.expectations for pipeline in pipelines):
        require("quality")


@contextmanager
def session(name: str, master: str, settings: Sequence[str] | None = None) -> Iterator[Any]:
    """Yield the SparkSession that this process has already, else a new one.

    SIGTERM and SIGHUP end the block like an exception, as they do in the Spark jobs. An error of Spark is raised as one
    of statelib (:func:`~statelib.spark.session.job_failures.as_own`). ``master``: a master of Spark, or the URL of a
    Spark Connect server. Raise InvalidRequestError (``bad-conf``) for a setting without a name, and what
    :func:`~statelib.spark.session.remote_session.remote_session` raises."""
    require("spark")
    require_one_pyspark()
    pairs = [_pair(text) for text in settings or ()]
    if not is_remote_url(master):
        _set_environment(settings or ())
    # Here, so that other commands start without Spark.
    from statelib.spark.session.job_failures import OF_SPARK, as_own
    from statelib.spark.session.local_session import SETTINGS, borrowed_session
    from statelib.spark.session.termination import unwound_by_signal

    try:
        with borrowed_session(name, master) as spark, unwound_by_signal():
            if is_remote_url(master):
                from statelib.spark.session.remote_session import change_settings

                change_settings(spark, (*pairs, *SETTINGS.items()))
            yield spark
    except OF_SPARK as error:
        raise as_own(error) or error from error


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise InvalidRequestError(f"--conf {text!r}: expected NAME=VALUE", kind="bad-conf")
    return name, value


def _set_environment(settings: Sequence[str]) -> None:
    os.environ.pop(REMOTE, None)  # PySpark refuses a master beside it
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('spark-log4j2.properties').as_uri()}"
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, [logging, os.environ.get("SPARK_SUBMIT_OPTS", "")]))
    os.environ[_ARGUMENTS] = _arguments(os.environ.get(_ARGUMENTS, ""), settings)


def _arguments(present: str, settings: Sequence[str]) -> str:
    """Return the arguments of spark-submit with these settings behind those that the user's environment has already,
    because the last one counts."""
    words = shlex.split(present) or [word for text in _QUIET for word in ("--conf", text)]
    words = words[: len(words) - (words[-1] == _SHELL)]
    added = [word for text in settings for word in ("--conf", text)]
    if added != words[-len(added) :]:  # those of an earlier session of this process
        words += added
    return shlex.join([*words, _SHELL])
