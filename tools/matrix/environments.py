"""An environment for one cell of the matrix, installed from the package index by uv; kept below ``.work/matrix``.

Airflow alone is resolved first, as of the day of its release: the result serves as constraints, as those do that
Airflow publishes. Providers are left out of them, because they are upgraded independently of Airflow, and so is what
PySpark needs in newer versions.
"""

import os
import subprocess
import sys
import zipfile
from datetime import date, timedelta
from pathlib import Path
from zlib import crc32

from demo.places import CHECKOUT
from tools.matrix.cells import AIRFLOWS, AS_OF, LOWEST, LOWEST_SPARK_PROVIDER, Cell

MATRIX = CHECKOUT / ".work" / "matrix"
UNPINNED = ("apache-airflow-providers-", "googleapis-common-protos", "grpcio", "protobuf")
"""Beginnings of the names of packages that are not constrained."""
PATIENCE_S = 900


class CannotInstallError(Exception):
    """A cell's environment cannot be made: the message says why, in uv's words. ``by_conflict``: the package index
    answers, but has no packages that go together."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.by_conflict = "No solution found" in message and "upload date" not in message


def environment_of(cell: Cell, wheel: Path) -> Path:
    """Return the programs of the cell's environment with the wheel in it. Packages that are installed already are kept.

    Raise CannotInstallError if the package index cannot be reached, or has no packages that go together.
    """
    directory = MATRIX / str(cell)
    python = str(directory / "bin" / "python")
    ready = directory / ".ready"
    wanted = f"{_requirements(wheel)} {AS_OF} {AIRFLOWS[cell.airflow]} {LOWEST_SPARK_PROVIDER} {sys.version}"
    if not (ready.exists() and ready.read_text() == wanted):
        _make(cell, wheel, directory)
        ready.write_text(wanted)
    _uv("pip", "install", "--quiet", "--no-deps", "--reinstall-package", "statelib", "--python", python, str(wheel))
    return directory / "bin"


def _make(cell: Cell, wheel: Path, directory: Path) -> None:
    MATRIX.mkdir(parents=True, exist_ok=True)
    _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(directory))
    constraints = MATRIX / f"{cell}.txt"
    constraints.write_text(_constraints(cell))
    _uv(
        "pip", "install", "--quiet", "--python", str(directory / "bin" / "python"), "--constraint", str(constraints),
        *_not_after(AS_OF), f"statelib[all] @ {wheel.as_uri()}", f"apache-airflow=={cell.airflow}",
        f"pyspark=={cell.pyspark}", f"pyspark-client=={cell.pyspark}",
        *([f"apache-airflow-providers-apache-spark=={LOWEST_SPARK_PROVIDER}"] if cell == LOWEST else []),
    )  # fmt: skip


def installed(programs: Path) -> dict[str, str]:
    """Return the version of each package in an environment, by name."""
    lines = _uv("pip", "freeze", "--python", str(programs / "python")).splitlines()
    return {name: version for name, _, version in (line.partition("==") for line in lines) if version}


def _constraints(cell: Cell) -> str:
    resolved = _uv(
        "pip", "compile", "--quiet", "--no-header", "--no-annotate", "--python", sys.executable,
        *_not_after(AIRFLOWS[cell.airflow]), "-", text=f"apache-airflow=={cell.airflow}",
    )  # fmt: skip
    return "".join(f"{line}\n" for line in resolved.splitlines() if not line.startswith(UNPINNED))


def _not_after(day: date) -> tuple[str, str]:
    return "--exclude-newer", f"{day + timedelta(days=1)}T00:00:00Z"


def _requirements(wheel: Path) -> str:
    """Return a checksum of what the wheel's metadata require."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = archive.read(name).splitlines()
    return f"{crc32(b' '.join(line for line in lines if line.startswith(b'Requires-'))):08x}"


def _uv(*arguments: str, text: str = "") -> str:
    """Run uv and return what it prints."""
    cache = {"UV_CACHE_DIR": str(CHECKOUT / ".work" / "cache" / "uv")}
    environment = {**cache, **os.environ, "UV_PYTHON_DOWNLOADS": "never"}
    command = [str(Path(sys.executable).with_name("uv")), *arguments]
    try:
        done = subprocess.run(  # noqa: S603
            command, env=environment, input=text, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotInstallError(f"uv {arguments[0]}: {error}") from error
    if done.returncode != 0:
        raise CannotInstallError(f"uv {' '.join(arguments[:2])}: {done.stderr.strip()[-2000:]}")
    return done.stdout
