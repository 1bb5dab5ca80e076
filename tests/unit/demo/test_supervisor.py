"""The supervisor's reaction when a part of Airflow ends, with real processes that end."""

import subprocess
from pathlib import Path

import pytest

from demo.airflow_process import RESTARTS_COUNT_FOR_S, AirflowStartError, Supervisor


def ended() -> subprocess.Popen[bytes]:
    process = subprocess.Popen(["true"])
    process.wait()
    return process


def supervisor(processes: dict[str, subprocess.Popen[bytes]], started: list[str], log: Path) -> Supervisor:
    def start(name: str) -> subprocess.Popen[bytes]:
        started.append(name)
        return ended()

    log.write_text("the reason")
    return Supervisor(processes, start, lambda _: log, restarts=2)


def test_the_scheduler_is_restarted_a_limited_number_of_times(tmp_path: Path) -> None:
    started: list[str] = []
    watched = supervisor({"scheduler": ended()}, started, tmp_path / "log")
    watched.check()
    watched.check()
    with pytest.raises(AirflowStartError, match=r"scheduler ended; log .*\nthe reason"):
        watched.check()
    assert started == ["scheduler", "scheduler"]


def test_the_triggerer_is_restarted_and_old_restarts_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    now = [0.0]
    monkeypatch.setattr("demo.airflow_process.time.monotonic", lambda: now[0])
    watched = supervisor({"triggerer": ended()}, started, tmp_path / "log")
    for _ in range(4):
        watched.check()
        now[0] += RESTARTS_COUNT_FOR_S / 2 + 1
    assert started == ["triggerer"] * 4


def test_the_end_of_any_other_part_is_an_error(tmp_path: Path) -> None:
    started: list[str] = []
    with pytest.raises(AirflowStartError, match="api-server ended"):
        supervisor({"api-server": ended()}, started, tmp_path / "log").check()
    assert started == []
