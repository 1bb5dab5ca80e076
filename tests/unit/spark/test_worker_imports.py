"""The modules that each Python worker of Spark imports before its first event."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_worker_imports_neither_catalog_nor_gate_nor_airflow() -> None:
    code = (
        "import sys, statelib.spark.snapshot.subtask.worker; "
        "print([m for m in ('sqlalchemy', 'great_expectations', 'pandas', 'airflow', 'typer') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
