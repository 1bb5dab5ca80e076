"""The Spark session of a command: quiet, on this machine unless a master is named, with statelib and its user's code
importable."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from statelib.errors import InvalidRequestError
from statelib.extras import require, require_one_pyspark


@contextmanager
def session(name: str, master: str, settings: Sequence[str] | None = None) -> Iterator[Any]:
    """Yield the SparkSession that this process has already, else a new one.

    SIGTERM and SIGHUP end the block like an exception, as they do in the Spark jobs.
    Raise InvalidRequestError (``bad-conf``) for a setting without a name."""
    require("spark")
    require_one_pyspark()
    _set_environment(settings or ())
    from statelib.spark.session.local_session import (
        borrowed_session,  # here, so that other commands start without Spark
    )
    from statelib.spark.snapshot.termination import unwound_by_signal

    with borrowed_session(name, master) as spark, unwound_by_signal():
        yield spark


def _set_environment(settings: Sequence[str]) -> None:
    for text in settings:
        if not text.partition("=")[0] or "=" not in text:
            raise InvalidRequestError(f"--conf {text!r}: expected NAME=VALUE", kind="bad-conf")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    quiet = ("spark.log.level=ERROR", "spark.ui.enabled=false", "spark.ui.showConsoleProgress=false")
    logging = f"-Dlog4j2.configurationFile={Path(__file__).with_name('spark-log4j2.properties').as_uri()}"
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(filter(None, [logging, os.environ.get("SPARK_SUBMIT_OPTS", "")]))
    words = [word for text in (*quiet, *settings) for word in ("--conf", text)]
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", shlex.join([*words, "pyspark-shell"]))
