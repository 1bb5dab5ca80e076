"""A missing package is named together with the extra that contains it. Other import errors are not taken for that."""

import tomllib
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from statelib import extras
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.extras import EXTRAS, extras_named, require, require_one_pyspark


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate an installation without PySpark. A real one is tested in tests/integration/test_wheel.py."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "pyspark" else find_spec(name))


@pytest.mark.usefixtures("without_spark")
def test_the_error_names_the_missing_extra() -> None:
    with pytest.raises(NotFoundError, match="needs the package pyspark") as required:
        require("quality", "spark")
    error = ModuleNotFoundError("No module named 'pyspark'", name="pyspark.sql")
    with pytest.raises(NotFoundError) as named, extras_named():
        raise error
    assert (named.value.kind, named.value.hint) == ("missing-extra", 'pip install "statelib[spark]"')
    assert str(named.value) == str(required.value)


def test_a_full_installation_lacks_nothing() -> None:
    require(*EXTRAS)


@pytest.mark.parametrize("name", ["a_module_of_the_user", "pyspark.no_such_part", "pandas_of_the_user"])
def test_other_import_errors_are_raised_unchanged(name: str) -> None:
    with pytest.raises(ModuleNotFoundError), extras_named():
        import_module(name)


def test_the_wheel_has_each_extra_and_the_extra_all() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    assert set(project["optional-dependencies"]) == {*EXTRAS, "all"}


def add_metadata(site: Path, **versions: str) -> None:
    """Write the metadata that ``pip install`` leaves for packages."""
    for name, version in versions.items():
        (site / f"{name}-{version}.dist-info").mkdir()
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (site / f"{name}-{version}.dist-info" / "METADATA").write_text(text)


@pytest.mark.parametrize(("pyspark", "client"), [("4.2.0", "4.2.0"), ("4.1.3", "4.1.0")])
def test_a_client_of_pysparks_minor_version_is_accepted(
    pyspark: str, client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_metadata(tmp_path, pyspark=pyspark, pyspark_client=client)
    monkeypatch.syspath_prepend(str(tmp_path))
    require_one_pyspark()


def test_a_client_of_another_minor_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_metadata(tmp_path, pyspark="4.1.3", pyspark_client="4.2.0")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(InvalidRequestError, match=r"pyspark 4\.1\.3 and pyspark-client 4\.2\.0") as refused:
        require_one_pyspark()
    assert "pyspark-client==4.1.3 pyspark==4.1.3" in refused.value.hint
