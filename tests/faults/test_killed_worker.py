"""SIGTERM to a process that writes a snapshot: it ends by that signal, and nothing it wrote is left."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PIPELINE = """\
name: slow
source: {{path: "{{data}}/x", columns: {{key: string, amount: long}}}}
key: [key]
states:
  total: {{kind: value, fields: {{amount: {{agg: sum, of: amount}}}}}}
backend: {backend}
checkpoint: {{inline_threshold_bytes: 0, execution: {execution}, strategy: {strategy}}}
"""


@pytest.mark.parametrize("execution", ["async", "sync"])
@pytest.mark.parametrize(("backend", "strategy"), [("heap", "canonical"), ("heap", "full"), ("rocksdb", "full")])
def test_a_killed_subtask_leaves_no_file(tmp_path: Path, backend: str, strategy: str, execution: str) -> None:
    for name in ("state", "pipelines", "data", "docs", "work"):
        (tmp_path / name).mkdir()
    text = PIPELINE.format(backend=backend, execution=execution, strategy=strategy)
    (tmp_path / "pipelines" / "slow.yaml").write_text(text)
    command = [sys.executable, str(Path(__file__).with_name("kill_worker.py")), str(tmp_path), "2"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
    ) as process:
        assert process.stdout is not None
        said = [process.stdout.readline(), process.stdout.readline()]
        if said[1] == "writing\n":
            process.send_signal(signal.SIGTERM)
        rest, trouble = process.communicate(timeout=100)
    assert said == ["ready\n", "writing\n"], trouble
    assert (process.returncode, rest) == (-signal.SIGTERM, ""), trouble
    assert [p for p in (tmp_path / "state").rglob("*") if p.is_file()] == []
    assert list((tmp_path / "work").iterdir()) == [], "the scratch directory is gone as well"
