"""The jobs import PySpark as it is installed, not from the zip that Spark puts before it."""

import os
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

import pyspark
import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("job", ["bootstrap.py", "preview_mend.py", "rehearse_restore.py", "snapshot.py"])
def test_a_job_imports_the_installed_pyspark(tmp_path: Path, job: str) -> None:
    library = tmp_path / "python" / "lib"
    library.mkdir(parents=True)
    (tmp_path / "python" / "pyspark").symlink_to(Path(pyspark.__file__).parent)
    with zipfile.ZipFile(library / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "raise ImportError('from the zip')")
    command = [sys.executable, str(files("statelib_jobs") / job), "--help"]
    environment = os.environ | {"PYTHONPATH": str(library / "pyspark.zip")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
