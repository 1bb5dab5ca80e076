"""The memory of the Airflow task that runs the gate does not depend on the size of the state."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.flows.checkpoint.steps import begin
from statelib.flows.wiring import Deployment
from statelib.serializers.columns.arrow import number_array
from tests.support.worlds import day, new_deployment, publish_here

PIPELINE = """\
name: texts
source: {path: "{data}/{start}-{end}", columns: {id: long, text: string}}
key: [id]
states:
  newest: {kind: value, fields: {events: {agg: count}, text: {agg: max, of: text}}}
  ids: {kind: map, user_key: id, fields: {events: {agg: count}}}
backend: %s
parallelism: 2
checkpoint: {strategy: full}
"""
GATE = """\
import sys
import airflow.sdk
import statelib_airflow.dags.dag_factory
from pathlib import Path
from statelib.flows.checkpoint.steps import check
from tests.integration.test_memory_of_the_gate import deployment_in

deployment = deployment_in(Path(sys.argv[1]))
report = check(deployment, deployment.pipeline("texts"), 1)
assert all(result.passed for result in report.results), report
status = Path("/proc/self/status").read_text()
print("peak", status.split("VmHWM:")[1].split()[0])
"""
MOST_KIB = 400 << 10
KEYS, WIDTH = 250_000, 700


def deployment_in(root: Path) -> Deployment:
    return new_deployment(root, root, root / "pipelines")


def texts() -> pa.Table:
    """Return an event per key, each with a random text, so that no storage makes it smaller."""
    letters = np.random.default_rng(1).integers(33, 127, KEYS * WIDTH, dtype=np.uint8)
    ends = np.arange(0, (KEYS + 1) * WIDTH, WIDTH, dtype=np.int32)
    text = pa.Array.from_buffers(pa.string(), KEYS, [None, pa.py_buffer(ends), pa.py_buffer(letters)])
    return pa.table({"id": number_array(np.arange(KEYS), pa.int64()), "text": text})


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_the_gate_of_a_large_state_needs_little_memory(tmp_path: Path, backend: str) -> None:
    """The state is just below the size from which tasks of the job would read it, and the process has Airflow in it."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "texts.yaml").write_text(PIPELINE % backend)
    deployment = deployment_in(tmp_path)
    pipeline = deployment.pipeline("texts")
    checkpoint_id = begin(deployment, pipeline, day(1), "test").checkpoint_id
    publish_here(deployment, pipeline, checkpoint_id, texts())
    manifest = deployment.open(deployment.catalog().get(pipeline.name, checkpoint_id)).manifest
    assert manifest is not None
    stored = sum(file.size_bytes for file in manifest.files)
    assert 0.6 * pipeline.checks.in_job_from_bytes < stored < pipeline.checks.in_job_from_bytes
    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path / "airflow")}
    command = [sys.executable, "-c", GATE, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    peak_kib = int(done.stdout.split("peak ")[1])
    assert peak_kib < MOST_KIB, f"the gate's process took {peak_kib >> 10} MiB for {stored >> 20} MiB of state"
