"""The settings of the Spark session of a command."""

import os
import shlex
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from statelib.cli.spark_session import session
from statelib.spark.session import local_session


def test_a_setting_of_the_user_does_not_move_the_session_out_of_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = dict(local_session.SETTINGS)
    spark = SimpleNamespace(conf=SimpleNamespace(set=settings.__setitem__))
    monkeypatch.setattr(local_session, "borrowed_session", lambda _name, _master: nullcontext(spark))
    wanted = ["spark.sql.session.timeZone=Europe/Berlin", "spark.sql.shuffle.partitions=7"]
    with session("p run", "sc://host:15002", wanted):
        assert settings == local_session.SETTINGS | {"spark.sql.shuffle.partitions": "7"}


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ("", "--conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false --conf 'a=b c' pyspark-shell"),
        ("--packages x:y:1 --conf a=z pyspark-shell", "--packages x:y:1 --conf a=z --conf 'a=b c' pyspark-shell"),
    ],
)
def test_a_setting_counts_beside_arguments_in_the_environment(
    monkeypatch: pytest.MonkeyPatch, present: str, expected: str
) -> None:
    for name in ("SPARK_REMOTE", "PYSPARK_PYTHON", "SPARK_SUBMIT_OPTS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", present)
    monkeypatch.setattr(local_session, "borrowed_session", lambda _name, _master: nullcontext())
    for _ in range(2):
        with session("p run", "local[1]", ["a=b c"]):
            assert shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"]) == shlex.split(expected)
