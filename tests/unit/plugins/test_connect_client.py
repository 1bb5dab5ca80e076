"""The client of a Spark Connect server, as a process of the task."""

import threading
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowTaskTimeout
from statelib_airflow.operators import StatelibSparkOperator
from statelib_airflow.runtime.connect_client import ConnectClient

CLIENT = """\
import signal, sys, time

def ended(*_):
    open(sys.argv[1], "w").close()
    sys.exit()

signal.signal(signal.SIGTERM, ended)
print("begun", flush=True)
time.sleep(20)
"""


def test_a_client_is_ended_when_the_task_has_run_for_too_long(tmp_path: Path) -> None:
    script, ended = tmp_path / "client.py", tmp_path / "ended"
    script.write_text(CLIENT)

    def late(*_line: str) -> None:
        raise AirflowTaskTimeout

    with pytest.raises(AirflowTaskTimeout):
        ConnectClient("sc://host", {}).run(str(script), [str(ended)], late)
    assert ended.exists(), "it got a signal, and did not go on to its own end"


def test_a_killed_task_ends_its_client(tmp_path: Path) -> None:
    script, ended, begun = tmp_path / "client.py", tmp_path / "ended", threading.Event()
    script.write_text(CLIENT)
    operator = StatelibSparkOperator(task_id="job", script="snapshot.py")
    operator._client = client = ConnectClient("sc://host", {})
    words = (str(script), [str(ended)], lambda *_line: begun.set())
    running = threading.Thread(target=client.run, args=words)
    running.start()
    assert begun.wait(60)
    operator.on_kill()
    running.join()
    assert ended.exists()
