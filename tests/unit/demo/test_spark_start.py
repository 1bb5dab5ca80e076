"""Spark's JVMs get the same settings with an archive of classes as without, and really use it."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from demo import spark_start
from demo.places import Places, Ports, environment


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(spark_start, "ARCHIVE_DIRECTORY", tmp_path / "spark")
    monkeypatch.setattr(spark_start, "_archive", lambda: tmp_path / "spark" / "classes-1.jsa")
    return tmp_path / "spark" / "classes-1.jsa"


def test_with_an_archive_the_variables_contain_the_settings_of_the_file(archive: Path) -> None:
    archive.parent.mkdir()
    archive.touch()
    variables = spark_start.variables(Path("/a b/scratch"))
    options = shlex.split(variables["SPARK_SUBMIT_OPTS"])
    assert {"-Djava.io.tmpdir=/a b/scratch", f"-XX:SharedArchiveFile={archive}"} <= set(options)
    given = dict(option[2:].split("=", 1) for option in options if option.startswith("-Dspark."))
    executors = shlex.split(given.pop("spark.executor.extraJavaOptions"))
    lines = (spark_start.CONF / "spark-defaults.conf").read_text().splitlines()
    file = dict(line.split(None, 1) for line in lines if line.startswith("spark."))
    assert given == {name: value for name, value in file.items() if not name.endswith("extraJavaOptions")}
    for name in ("driver", "executor"):
        flags = set(file[f"spark.{name}.extraJavaOptions"].split())
        assert flags <= set(options)
        assert flags <= set(executors)
    assert variables["SPARK_DRIVER_MEMORY"] == given["spark.driver.memory"]
    assert list(Path(variables["SPARK_CONF_DIR"]).iterdir()) == []


def test_without_an_archive_or_with_own_settings_the_file_is_used(archive: Path) -> None:
    assert spark_start.variables(Path("/scratch"))["SPARK_CONF_DIR"] == str(spark_start.CONF)
    archive.parent.mkdir()
    archive.touch()
    variables = spark_start.variables(Path("/scratch"), {"SPARK_CONF_DIR": "/etc/spark"})
    assert "-D" not in variables["SPARK_SUBMIT_OPTS"].replace("-Djava.io.tmpdir", "")


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_jvm_loads_its_classes_from_the_archive(tmp_path: Path, elsewhere: bool) -> None:
    """Java refuses to start with ``-Xshare:on`` if the archive is not of this class path."""
    places = Places(work=tmp_path)
    places.make_directories()
    variables = environment(places, Ports())
    if elsewhere:
        variables["SPARK_CONF_DIR"] = str(spark_start.CONF)
    done = started(variables)
    assert (done.returncode != 0) == elsewhere, done.stdout + done.stderr


def test_the_jvms_of_tests_load_their_classes_from_the_archive() -> None:
    done = started(spark_start.fast_start())
    assert done.returncode == 0, done.stdout + done.stderr


def started(variables: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Start a JVM that must use the archive, and return its output and status."""
    options = variables["SPARK_SUBMIT_OPTS"]
    if "SharedArchiveFile" not in options:
        pytest.skip("no archive of Spark's classes: make java")
    shared = {"PYSPARK_PYTHON": sys.executable, "SPARK_SUBMIT_OPTS": f"{options} -Xshare:on"}
    command = [Path(sys.executable).with_name("spark-submit"), "--version"]
    return subprocess.run(command, env=os.environ | variables | shared, capture_output=True, text=True, check=False)
