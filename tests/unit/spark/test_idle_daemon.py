"""A daemon for Python workers ends when it has had no worker for some time, and never before its workers."""

import subprocess
import sys

from statelib.spark.session.idle_daemon import is_of_one_session

DAEMON = """
import os, signal, sys, time
from statelib.spark.session.idle_daemon import end_when_idle

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as in PySpark's daemon
end_when_idle(0.5)
if os.fork() == 0:
    time.sleep(3)
    print("the worker ends", flush=True)
    os._exit(0)
while True:
    time.sleep(1)
"""


def test_a_daemon_ends_after_its_last_worker() -> None:
    done = subprocess.run([sys.executable, "-c", DAEMON], capture_output=True, text=True, check=True)
    assert done.stdout == "the worker ends\n"


def test_only_daemons_of_one_session_are_recognised() -> None:
    name = "SPARK_JOB_ARTIFACT_UUID"
    assert not is_of_one_session({})
    assert not is_of_one_session({name: "default"})
    assert is_of_one_session({name: "0f8fad5b-d9cb-469f-a165-70867728950e"})
