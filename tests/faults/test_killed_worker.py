"""A process that writes a snapshot receives a signal to end, or Spark's JVM dies. Either way it leaves no file."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from demo.processes import family, kill
from tests.support.extent import cases, large

CHECKOUT = Path(__file__).resolve().parents[2]
PIPELINE = """\
name: slow
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{key: string, amount: long}}}}
key: [key]
states:
  total: {{kind: value, fields: {{amount: {{agg: sum, of: amount}}}}}}
backend: {backend}
checkpoint: {{inline_threshold_bytes: 0, execution: {execution}, strategy: {strategy}}}
"""


@pytest.mark.parametrize(
    ("number", "storing", "execution"),
    cases(
        [signal.SIGTERM, signal.SIGHUP],
        [("heap", "canonical"), ("heap", "full"), ("rocksdb", "full")],
        ["async", "sync"],
    ),
)
def test_a_killed_subtask_leaves_no_file(
    tmp_path: Path, number: signal.Signals, storing: tuple[str, str], execution: str
) -> None:
    backend, strategy = storing
    with subtask(tmp_path, backend, strategy, execution) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        if lines[1] == "writing\n":
            process.send_signal(number)
        rest, trouble = process.communicate(timeout=100)
    assert lines == ["ready\n", "writing\n"], trouble
    assert (process.returncode, rest) == (-number, ""), trouble
    assert_nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("backend", "strategy"),
    [pytest.param("heap", "canonical", marks=large("make test kills the one on RocksDB")), ("rocksdb", "incremental")],
)
def test_a_subtask_whose_jvm_is_killed_leaves_no_file(tmp_path: Path, backend: str, strategy: str) -> None:
    """This happens to a job whose run is marked as failed in Airflow, and to an executor that runs out of memory."""
    with subtask(tmp_path, backend, strategy, "async", "spark") as process:
        assert process.stderr is not None
        lines = ""
        while line := process.stderr.readline():
            lines += line
            if line.endswith("writing\n"):  # Spark may have begun the line with its progress bar.
                break
        members = family(process.pid)
        (jvm,) = (member for member in members if member.name() == "java")
        kill(jvm)
        rest, trouble = process.communicate(timeout=100)
        _, alive = psutil.wait_procs(members, timeout=100)
    assert alive == []
    assert (process.returncode, rest) == (1, "ready\n"), lines + trouble
    assert_nothing_left(tmp_path)


def subtask(root: Path, backend: str, strategy: str, execution: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a subtask that writes slowly and prints a line when it has begun to."""
    for name in ("state", "pipelines", "data", "docs", "work"):
        (root / name).mkdir()
    text = PIPELINE.format(backend=backend, execution=execution, strategy=strategy)
    (root / "pipelines" / "slow.yaml").write_text(text)
    return subprocess.Popen(
        [sys.executable, "-m", "tests.faults.kill_worker", str(root), "2", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
    )


def assert_nothing_left(root: Path) -> None:
    assert [p for p in (root / "state").rglob("*") if p.is_file()] == []
    assert list((root / "work").iterdir()) == [], "the scratch directory is gone as well"
