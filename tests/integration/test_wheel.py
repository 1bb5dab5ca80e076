"""The wheel: its content and that of the source distribution, equal bytes of each build, and a light installation of
it."""

import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import polars as pl
import pytest

from statelib import __version__
from statelib.flows.wiring import Deployment
from tests.integration.installed_wheel import CHECKOUT, build, install
from tests.integration.shop import environment, open_shop
from tests.support.worlds import new_deployment

GOLDEN = CHECKOUT / "tests" / "golden" / "own" / __version__
TOP = {"statelib", "statelib_airflow", "statelib_jobs", f"statelib-{__version__}.dist-info"}
HELD = {
    "statelib/py.typed",
    "statelib_airflow/py.typed",
    "statelib_jobs/py.typed",
    "statelib/cli/spark-log4j2.properties",
    "statelib/catalog/migrations/env.py",
    "statelib/catalog/migrations/versions/v0008_mended_interval.py",
    "statelib/catalog/migrations/versions/v0009_restore_keys.py",
    "statelib/testing/suites/backend.py",
    "statelib_airflow/operators.py",
    "statelib_airflow/page/dist/index.html",
    "statelib_jobs/snapshot.py",
}

BOOTSTRAP = """\
name: limits
max_parallelism: 128
operators:
  limits:
    rows: {parquet: /history/limits}
    key: {type: string, of: name}
    states:
      limit: {kind: value, type: long, of: most}
"""
SALES = """\
name: sales
schedule: {cron: "@daily", start: 2013-01-01}
source: {path: "{data}/{start:%Y-%m-%d}", columns: {shop: string}}
key: [shop]
states: {sold: {kind: value, value: {agg: count}}}
backend: heap
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of all files that are or would be committed, with other time stamps."""
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout
    copy = tmp_path_factory.mktemp("copy")
    for name in filter(None, names.split("\0")):
        if (CHECKOUT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(CHECKOUT / name, copy / name)
            os.utime(copy / name, (1e9, 1e9))
    return copy


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the programs of an environment with the wheel and no extra."""
    return install(wheel, tmp_path_factory.mktemp("light"))


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """Return a deployment with checkpoints of the pipeline ``sales``."""
    return open_shop(tmp_path_factory.mktemp("shop"))


def test_the_wheel_contains_the_packages_and_no_server_of_the_tests(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == TOP
    assert set(names) >= HELD
    pages = {name.split("/")[2] for name in names if name.startswith("statelib_airflow/page/")}
    assert pages == {"dist"}
    assert [name for name in names if "endpoint" in name or "server" in name or "proxy" in name] == []


def test_the_source_distribution_contains_all_committed_files(sdist: Path, checkout: Path) -> None:
    with tarfile.open(sdist) as archive:
        held = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert held == {str(path.relative_to(checkout)) for path in checkout.rglob("*") if path.is_file()} | {"PKG-INFO"}


def test_two_builds_of_the_same_files_have_the_same_bytes(
    wheel: Path, sdist: Path, checkout: Path, tmp_path: Path
) -> None:
    assert build("wheel", tmp_path / "wheel", checkout).read_bytes() == wheel.read_bytes()
    assert build("sdist", tmp_path / "sdist", checkout).read_bytes() == sdist.read_bytes()


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, sdist: Path, tmp_path: Path) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    assert build("wheel", tmp_path / "wheel", source).read_bytes() == wheel.read_bytes()


def statelib(light: Path, *arguments: str, status: int = 0, **variables: str) -> str:
    """Run the installed command and return its output; if it fails, that of stderr too."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("STATELIB_", "PYTHON"))}
    command = [str(light / "statelib"), *arguments]
    done = subprocess.run(command, env=inherited | variables, cwd=light, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + (done.stderr if status else "")


def test_a_light_installation_prints_its_version_and_has_no_large_package(light: Path) -> None:
    assert statelib(light, "--version") == f"statelib {__version__}\n"
    heavy = ("pyspark", "airflow", "great_expectations", "pandas", "obstore", "psycopg", "opentelemetry", "pytest")
    code = f"from importlib.util import find_spec; print([name for name in {heavy!r} if find_spec(name)])"
    done = subprocess.run([str(light / "python"), "-I", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir() if (path / "_metadata").is_file()))
def test_a_light_installation_reads_snapshots(light: Path, name: str) -> None:
    assert json.loads(statelib(light, "inspect", str(GOLDEN / name), "--json"))
    exported = statelib(light, "export", str(GOLDEN / name), "--all")
    assert len(exported.splitlines()) > 10


def test_a_light_installation_works_on_a_deployment(light: Path, shop: Deployment) -> None:
    variables = environment(shop)
    listed = json.loads(statelib(light, "checkpoints", "list", "-p", "sales", "--json", **variables))
    first, second = sorted(row["checkpoint_id"] for row in listed)[:2]
    assert json.loads(statelib(light, "inspect", f"sales/{first}", "--json", **variables))
    statelib(light, "verify", "-p", "sales", **variables)
    compared = statelib(light, "checkpoints", "diff", f"sales/{first}", f"sales/{second}", **variables)
    assert [line.split()[:2] for line in compared.splitlines() if line.startswith("items")] == [["items", "equal"]]
    judged = statelib(light, "pipelines", "validate", "--json", **variables)
    assert "sales" in json.loads(judged)["valid"]


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (("run", "sales", "--start", "2013-02-01", "--end", "2013-02-02", "--whole"), "spark"),
        (("savepoint", "create", "sales"), "spark"),
        (("bootstrap", "bootstrap.yaml", "--target", "/nowhere"), "spark"),
        (("inspect", "s3://bucket/chk-1"), "objects"),
        (("gc", "--dry-run"), "postgres"),
    ],
)
def test_a_command_that_needs_an_extra_names_it(
    light: Path, shop: Deployment, arguments: tuple[str, ...], extra: str
) -> None:
    variables = environment(shop)
    (light / "bootstrap.yaml").write_text(BOOTSTRAP)
    if extra == "postgres":
        variables["STATELIB_CATALOG"] = "postgresql+psycopg://me@127.0.0.1:1/none"
    output = statelib(light, *arguments, status=2, **variables)
    assert "which is not installed" in output
    assert f'pip install "statelib[{extra}]"' in output


def test_with_spark_alone_pipelines_without_expectations_run(wheel: Path, tmp_path: Path) -> None:
    programs = install(wheel, tmp_path / "spark", ["spark"])
    for name in ("pipelines", "2013-01-01"):
        (tmp_path / name).mkdir()
    pl.DataFrame({"shop": ["a", "b", "b"]}).write_parquet(tmp_path / "2013-01-01" / "sales.parquet")
    file = tmp_path / "pipelines" / "sales.yaml"
    file.write_text(SALES)
    variables = environment(new_deployment(tmp_path, tmp_path, tmp_path / "pipelines"))
    (done,) = json.loads(statelib(programs, "run", "sales", "--json", **variables))["checkpoints"]
    assert (done["state"], done["entries"]) == ("COMPLETED", 2)
    expectation = "{state: sold, expect: column_values_to_not_be_null, column: value}"
    file.write_text(f"{SALES}checks: {{expectations: [{expectation}]}}\n")
    refused = statelib(programs, "savepoint", "create", "sales", status=2, **variables)
    assert 'pip install "statelib[quality]"' in refused
