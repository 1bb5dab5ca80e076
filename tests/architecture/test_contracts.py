"""The import contracts of pyproject.toml hold, and each of them can be broken."""

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.architecture.repository import ROOT, dotted_names, modules
from tools.matrix.cells import CELLS, LOWEST, LOWEST_SPARK_PROVIDER

pytestmark = pytest.mark.slow

ROOMS = ("statelib", "jobs", "plugins", "dags")


def lint_imports(directory: Path) -> subprocess.CompletedProcess[str]:
    command = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", command, "--no-cache"],
        cwd=directory,
        env={
            **os.environ,
            "COLUMNS": "200",
            "PYTHONPATH": os.pathsep.join(str(directory / part) for part in ("", "plugins", "jobs")),
            "PYTHONSAFEPATH": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_import_contracts_hold() -> None:
    result = lint_imports(ROOT)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize(
    ("module", "imported", "contract"),
    [
        ("statelib/storage/new.py", "statelib.backends.keyed", "rooms of statelib"),
        ("statelib/model/new.py", "statelib.wire.ragged", "rooms of statelib"),
        ("statelib/catalog/new.py", "statelib.quality", "rooms of statelib"),
        ("statelib/spark/new.py", "statelib.testing", "rooms of statelib"),
        ("statelib/novel/__init__.py", "statelib.errors", "rooms of statelib"),
        ("statelib/catalog/tables/new.py", "statelib.catalog.views.browsing", "inside a room no import circle"),
        ("jobs/statelib_jobs/new.py", "statelib.cli", "shells"),
        ("statelib/flows/new.py", "statelib_jobs.snapshot", "shells"),
        ("statelib/backends/heap/new.py", "statelib.backends.rocksdb.new", "backends are strangers"),
        ("statelib/coordinator/new.py", "time", "the coordinator only decides"),
        ("statelib/wire/new.py", "pyarrow.compute", "Arrow starts at serializers"),
        ("statelib/wire/new.py", "google_crc32c", "google_crc32c lives"),
        ("statelib/wire/new.py", "cramjam", "cramjam lives"),
        ("statelib/flows/new.py", "obstore.store", "object store clients"),
        ("statelib/restore/new.py", "rocksdict", "rocksdict lives"),
        ("statelib/flows/new.py", "sqlalchemy.orm", "SQL lives"),
        ("statelib/functions/new.py", "pandas", "Great Expectations and pandas live"),
        ("statelib/cli/new.py", "yaml", "pydantic, YAML and cron expressions live"),
        ("statelib/flows/new.py", "pyspark.sql", "Spark lives"),
        ("statelib/flows/new.py", "rich.table", "typer and rich live"),
        ("statelib/flows/new.py", "opentelemetry.metrics", "OpenTelemetry lives"),
        ("statelib/storage/new.py", "pytest", "test tools live"),
        ("jobs/statelib_jobs/new.py", "airflow.sdk", "Airflow lives"),
        ("dags/new.py", "fastapi", "FastAPI lives"),
    ],
)
def test_each_import_contract_can_be_broken(tmp_path: Path, module: str, imported: str, contract: str) -> None:
    for room in ROOMS:
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "statelib/backends/rocksdb/new.py").touch()
    (tmp_path / module).parent.mkdir(exist_ok=True)
    (tmp_path / module).write_text(f"import {imported}\n")
    result = lint_imports(tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    broken = [line for line in result.stdout.splitlines() if " BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), result.stdout


def test_file_systems_of_arrow_are_opened_only_in_storage() -> None:
    """import-linter sees only the first part of a library's name."""
    uses = [
        f"{path}:{line} {name}"
        for path, _, tree in modules(*ROOMS)
        for line, name in dotted_names(tree)
        if (name + ".").startswith("pyarrow.fs.") and not path.startswith("statelib/storage/")
    ]
    assert uses == []


PUBLIC_AIRFLOW = {
    "airflow.configuration",
    "airflow.plugins_manager",
    "airflow.sdk",
    "airflow.sdk.configuration",
    "airflow.sdk.exceptions",
    "airflow.sdk.log",
    "airflow.sdk.types",
    "airflow.triggers.base",
}
"""Airflow's public modules that the plugin uses; the providers' modules are public, too."""
INTERNALS = "plugins/statelib_airflow/airflow_internals.py"


def private_airflow(tree: ast.Module) -> set[str]:
    """Return the modules of Airflow outside its public interface that a module imports."""
    names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return {
        name
        for name in names
        if name.split(".")[0] == "airflow" and name not in PUBLIC_AIRFLOW and not name.startswith("airflow.providers.")
    }


def test_private_modules_of_airflow_are_imported_in_only_one_file() -> None:
    importing = {path: private_airflow(tree) for path, _, tree in modules("plugins", "dags")}
    assert importing.pop(INTERNALS)
    assert {path: names for path, names in importing.items() if names} == {}


def test_private_modules_of_airflow_are_recognised() -> None:
    source = "import airflow.models\nfrom airflow.sdk.execution_time import comms\nfrom airflow.sdk import DAG"
    assert private_airflow(ast.parse(source)) == {"airflow.models", "airflow.sdk.execution_time"}


def test_the_range_of_airflow_is_the_versions_whose_internals_are_known() -> None:
    from statelib_airflow.airflow_internals import AIRFLOW_VERSIONS

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (bounds,) = (line for line in extras["airflow"] if line.startswith("apache-airflow>"))
    minors = [int(version.split(".")[1]) for version in AIRFLOW_VERSIONS]
    assert minors == list(range(minors[0], minors[-1] + 1))
    assert LOWEST.airflow.startswith(f"3.{minors[0]}.")
    assert bounds == f"apache-airflow>={LOWEST.airflow},<3.{minors[-1] + 1}"


def test_the_ends_of_the_range_of_pyspark_are_cells_of_the_matrix() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = [Requirement(line) for line in (*extras["spark"], *extras["airflow"]) if line.startswith("pyspark")]
    assert [requirement.name for requirement in wanted] == ["pyspark", "pyspark-client"]
    (provider,) = (line for line in extras["airflow"] if line.startswith("apache-airflow-providers-apache-spark"))
    assert provider.partition(">=")[2] == f"{LOWEST_SPARK_PROVIDER.removesuffix('.0')},<7"
    lowest, highest = Version(LOWEST.pyspark), Version(CELLS[-1].pyspark)
    for requirement in wanted:
        bounds = {part.operator: Version(part.version) for part in requirement.specifier}
        assert (bounds[">="], bounds["<"]) == (lowest, Version(f"{highest.major}.{highest.minor}.{highest.micro + 1}"))
