"""The end of the demonstrations: one Ctrl-C cleans up completely, and threads of a story end with its block."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from demo.airflow_client import AirflowClient, AirflowRequestError
from demo.places import CHECKOUT, Places, Ports, environment
from demo.telling import side_by_side

ENDED_TWICE = """
import time
from demo.processes import ended_once
with ended_once():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("cleaning", flush=True)
        time.sleep(0.5)
        print("clean", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_does_not_disturb_the_cleanup(number: signal.Signals) -> None:
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", ENDED_TWICE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout
        for expected in ("ready\n", "cleaning\n"):
            assert process.stdout.readline() == expected
            process.send_signal(number)
        rest, trouble = process.communicate(timeout=60)
    assert rest == "clean\n"
    assert trouble.rstrip().endswith("KeyboardInterrupt")


def test_the_threads_of_a_block_end_if_it_ends_early() -> None:
    client = AirflowClient("http://127.0.0.1:9")
    ended = []

    def story() -> None:
        try:
            while True:
                client.check()
                time.sleep(0.01)
        except AirflowRequestError as error:
            ended.append(str(error))

    def interrupted() -> None:
        with side_by_side(client) as pool:
            pool.submit(story)
            pool.submit(story)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert ended == ["stopped", "stopped"]


def test_a_cluster_differs_from_a_laptop_only_by_settings(tmp_path: Path) -> None:
    """Settings of a cluster replace those of a laptop. Credentials of the shell are not taken over."""
    shell = {"AWS_SECRET_ACCESS_KEY": "mine", "AWS_PROFILE": "mine", "STATELIB_STORAGE": "/mine", "HOME": "/home/me"}
    laptop = environment(Places(work=tmp_path), Ports(), shell)
    settings = {"STATELIB_STORAGE": "s3://b/p", "AWS_REGION": "us-east-1"}
    cluster = environment(Places(work=tmp_path, settings=settings), Ports(), shell)
    assert {name for name in laptop if name.startswith("AWS_")} == set()
    assert laptop["STATELIB_STORAGE"] == str(tmp_path / "state")
    assert cluster == laptop | settings
