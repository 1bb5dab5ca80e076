"""Python's path in Spark's workers: no zip comes before the installed packages."""

import sys
from pathlib import Path

import pytest
from pyspark import SparkConf

from statelib.spark.session.installed import prefer_installed
from statelib.spark.session.local_session import with_daemon

PY4J = "py4j-0.10.9.9-src.zip"
OWN = "/somewhere/own.zip"


def path_after(monkeypatch: pytest.MonkeyPatch, *entries: Path | str) -> list[str]:
    monkeypatch.setattr(sys, "path", [OWN, *map(str, entries)])
    prefer_installed()
    assert sys.path[0] == OWN, "what is not Spark's stays where it was"
    return sys.path[1:]


def with_modules(directory: Path, *packages: str) -> Path:
    for package in packages:
        (directory / package).mkdir(parents=True)
        (directory / package / "__init__.py").touch()
        (directory / package / "daemon.py").touch()
    return directory


def zips(lib: Path) -> tuple[Path, Path]:
    lib.mkdir(parents=True)
    for name in ("pyspark.zip", PY4J):
        (lib / name).touch()
    return lib / "pyspark.zip", lib / PY4J


def test_with_an_installed_wheel_the_zips_and_the_jar_are_removed_from_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = with_modules(tmp_path, "pyspark", "py4j")
    pyspark, py4j = zips(site / "pyspark" / "python" / "lib")
    (site / "pyspark" / "python" / "pyspark").mkdir()
    jar = site / "pyspark" / "jars" / "spark-core_2.13-4.1.3.jar"
    assert path_after(monkeypatch, pyspark, py4j, jar, "/lib", site) == ["/lib", str(site)]
    assert path_after(monkeypatch, pyspark, "/lib") == [str(site), "/lib"], "else it would not be found at all"


def test_in_a_spark_distribution_the_directory_beside_the_zip_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = with_modules(tmp_path / "spark" / "python", "pyspark")
    pyspark, py4j = zips(python / "lib")
    result = path_after(monkeypatch, pyspark, py4j, "/lib")
    assert result == [str(python), str(py4j), "/lib"], "py4j is in its zip only"


def test_a_zip_without_such_a_directory_stays_on_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark, py4j = zips(tmp_path / "a" / "b" / "c" / "lib")
    assert path_after(monkeypatch, pyspark, py4j) == [str(pyspark), str(py4j)]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "statelib.spark.session.daemon"),
        ({"spark.python.daemon.module": "own.daemon"}, "own.daemon"),
        ({"spark.submit.pyFiles": "statelib.zip"}, None),
    ],
)
def test_spark_uses_our_daemon_unless_it_is_configured_otherwise_or_arrives_later(
    settings: dict[str, str], expected: str | None
) -> None:
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    assert with_daemon(conf).get("spark.python.daemon.module") == expected
