"""Settings that a deployment refuses before it reads or writes anything."""

import json
import pickle
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statelib.catalog.migration import REVISION
from statelib.cli.main import app
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError, StatelibError, UnsupportedError
from statelib.flows import wiring
from statelib.flows.wiring import VARIABLES
from statelib.telemetry.secrets import passwords, secrets

MINIMAL = {
    "name": "p",
    "source": {"path": "{data}/{start}-{end}", "columns": {"k": "string"}},
    "key": ["k"],
    "states": {"n": {"kind": "value", "fields": {"n": {"agg": "count"}}}},
    "backend": "heap",
}
WHOLE = dict.fromkeys(VARIABLES, "/srv/x") | {"STATELIB_CATALOG": "sqlite:////srv/catalog.db"}


def test_each_missing_variable_is_named() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        wiring.deployment({"STATELIB_DATA": "/srv/data", "STATELIB_DOCS": ""})
    assert caught.value.kind == "missing-setting"
    assert all(name in caught.value.message for name in VARIABLES if name != "STATELIB_DATA")
    assert "STATELIB_DATA" not in caught.value.message


def test_the_data_are_the_same_directory_wherever_a_command_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidRequestError) as caught:
        wiring.deployment(WHOLE | {"STATELIB_DATA": "data/shop"})
    assert (caught.value.kind, caught.value.hint) == ("bad-path", f"write STATELIB_DATA={tmp_path}/data/shop")
    for absolute in ("/srv/data", "s3://lake/shop", "dbfs:/shop"):
        assert wiring.deployment(WHOLE | {"STATELIB_DATA": absolute}).data == absolute


@pytest.mark.parametrize("own", [MINIMAL, MINIMAL | {"backend": "hep"}])
def test_an_old_copy_of_a_pipeline_file_does_not_take_its_place(tmp_path: Path, own: dict[str, object]) -> None:
    deployment = wiring.deployment(WHOLE | {"STATELIB_PIPELINES": str(tmp_path)})
    (tmp_path / "p-copy.yaml").write_text(json.dumps(MINIMAL))
    assert deployment.pipeline("p").path.endswith("p-copy.yaml")
    (tmp_path / "p.yaml").write_text(json.dumps(own))
    with pytest.raises(InvalidRequestError, match=r"p\.yaml:1: (name: .*p-copy.yaml has the name 'p'|backend: exp)"):
        deployment.pipeline("p")


@pytest.mark.parametrize("root", ["s3://bucket/prefix", "gs://bucket/prefix", "az://container/prefix", "/srv/state"])
def test_every_kind_of_storage_has_a_remover(root: str) -> None:
    deployment = wiring.deployment(WHOLE | {"STATELIB_STORAGE": root})
    assert (deployment.remover().files_at_once > 1) == ("://" in root)


def test_the_scratch_directory_is_created_or_named_in_the_error(tmp_path: Path) -> None:
    deployment = replace(wiring.deployment(WHOLE), work_directory=str(tmp_path / "a" / "b"))
    assert Path(deployment.scratch()).is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidRequestError) as caught:
        replace(deployment, work_directory=str(tmp_path / "file" / "c")).scratch()
    assert caught.value.kind == "no-scratch-directory"
    assert str(tmp_path / "file" / "c") in caught.value.message


def test_a_storage_of_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(UnsupportedError) as caught:
        wiring.deployment(WHOLE | {"STATELIB_STORAGE": "hdfs://name/prefix"}).remover()
    assert caught.value.kind == "unknown-scheme"


def test_local_copies_lie_below_the_scratch_directory_by_default() -> None:
    pipeline = Pipeline.model_validate(MINIMAL)
    default = wiring.deployment(WHOLE).local_states(pipeline).path
    elsewhere = wiring.deployment(WHOLE | {"STATELIB_LOCAL": "/fast"}).local_states(pipeline).path
    other = wiring.deployment(WHOLE | {"STATELIB_STORAGE": "/srv/y"}).local_states(pipeline).path
    assert default.parts[:4] == ("/", "srv", "x", "local-state")
    assert elsewhere.parts[:3] == ("/", "fast", "local-state")
    assert default.parts[-2:] == elsewhere.parts[-2:]
    assert (default.name, other.name) == ("p", "p")
    assert default.parent != other.parent, "two deployments may share a disk"


def test_an_empty_catalog_is_created_and_one_of_another_version_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/catalog.db"
    assert wiring.deployment(WHOLE | {"STATELIB_CATALOG": url}).catalog().list() == []
    for version in ("0001", "9999"):
        say_version(tmp_path / "catalog.db", version)
        with pytest.raises(StatelibError) as caught:
            wiring.deployment(WHOLE | {"STATELIB_CATALOG": url}).catalog().list()
        assert caught.value.kind == "catalog-schema-unknown"
    say_version(tmp_path / "catalog.db", REVISION)
    assert wiring.deployment(WHOLE | {"STATELIB_CATALOG": url}).catalog().list() == [], "a refusal is not remembered"


def say_version(path: Path, version: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = ?", (version,))
    connection.close()


@pytest.mark.parametrize(
    ("url", "password"),
    [
        ("postgresql://u:p%40ss@h/db", {"p%40ss", "p@ss"}),
        ("postgresql://u:p/s?s@h/db", {"p/s?s", "p%2Fs%3Fs"}),
        ("postgresql://u:p@s@h/db", {"p@s", "p%40s"}),
        ("postgresql://u@h/db?password=abc&sslpassword=d%26f", {"abc", "d%26f", "d&f"}),
        ("postgresql://u@h/db", set()),
        ("sqlite:////a/b@c.db", set()),
    ],
)
def test_passwords_of_a_url_are_recognised_in_every_encoding(url: str, password: set[str]) -> None:
    assert passwords(url) == password


def test_a_secret_is_recognised_by_a_name_in_small_letters() -> None:
    assert secrets({"db_password": "hunter22", "Shop_Token": "abcdefg", "HOME": "/home/me"}) == ("hunter22", "abcdefg")


def test_the_settings_for_workers_do_not_contain_the_catalogs_password() -> None:
    deployment = wiring.deployment(WHOLE | {"STATELIB_CATALOG": "postgresql+psycopg://me:hunter2@db/statelib"})
    assert b"hunter2" not in pickle.dumps(deployment.for_workers())
    assert "hunter2" not in repr(deployment)
    assert deployment.for_workers() == replace(deployment, catalog_url="")


def test_a_second_file_of_a_named_pipeline_is_a_fault_of_it(tmp_path: Path) -> None:
    for name in ("p", "p-copy"):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(MINIMAL))
    (tmp_path / "q.yaml").write_text("")
    result = CliRunner().invoke(app, ["pipelines", "validate", "p", "--directory", str(tmp_path)])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "1 valid, 1 not"
