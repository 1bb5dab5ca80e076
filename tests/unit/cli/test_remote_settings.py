"""The settings of a session of Spark Connect that a command uses."""

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
