"""Paths on the command line, and the errors for impossible paths."""

import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statelib.cli.commands import catalogs
from statelib.cli.main import app
from statelib.cli.named_snapshots import absolute
from statelib.cli.paths import absolute_target, explained_as_id, in_storage, local_file, path_of
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.wiring import VARIABLES
from statelib.model.amounts import amount, keys_and_entries, number_of
from tests.support.bootstraps import HISTORY


@pytest.mark.parametrize("text", ["s3://bucket/out", "gs://b/x", "abfss://c@a/x", "s3:/bucket"])
def test_a_uri_of_another_scheme_is_refused_as_a_local_path(text: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"--output {text}: expected a path on this machine") as refusal:
        local_file(text, "--output")
    assert refusal.value.kind == "not-a-local-path"


def test_paths_and_file_uris_are_local_paths(tmp_path: Path) -> None:
    assert local_file("out/a b", "-o") == Path("out/a b")
    assert local_file("day:1", "-o") == Path("day:1")
    assert local_file(f"file://{tmp_path}/x", "-o") == tmp_path / "x"


def test_the_error_for_a_mistyped_path_names_both_possible_meanings() -> None:
    expected = r"chk/1: as a path, there is no /.*chk/1; as the name of a checkpoint, not there"
    with pytest.raises(NotFoundError, match=expected), explained_as_id("chk/1"):
        raise NotFoundError("not there", kind="no-checkpoint")


@pytest.mark.parametrize("command", ["inspect", "verify", "hexdump"])
@pytest.mark.parametrize("has_settings", [True, False])
def test_a_mistyped_path_is_named_without_settings_or_catalog(
    command: str, has_settings: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if has_settings:
        for name in ("STATELIB_PIPELINES", "STATELIB_STORAGE"):
            monkeypatch.setenv(name, str(tmp_path))
        monkeypatch.setenv("STATELIB_CATALOG", f"sqlite:///{tmp_path}/none.db")
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, [command, "savpoints/savepoint-1", "--json"])
    message = json.loads(result.stdout)["message"]
    assert result.exit_code == 2
    assert f"as a path, there is no {tmp_path}/savpoints/savepoint-1; as the name of a checkpoint, " in message


def test_a_bootstrap_file_is_checked_without_a_target(tmp_path: Path) -> None:
    (tmp_path / "history.yaml").write_text(HISTORY)
    result = CliRunner().invoke(app, ["bootstrap", str(tmp_path / "history.yaml"), "--check", "--json"])
    assert (result.exit_code, json.loads(result.stdout)["operators"]) == (0, ["activity"])


def test_a_bootstrap_that_writes_needs_a_target(tmp_path: Path) -> None:
    (tmp_path / "history.yaml").write_text(HISTORY)
    result = CliRunner().invoke(app, ["bootstrap", str(tmp_path / "history.yaml"), "--json"])
    assert (result.exit_code, json.loads(result.stdout)["error"]) == (2, "no-target")


def test_the_noun_after_one_is_singular() -> None:
    assert [amount(n, "entry") for n in (0, 1, 2039)] == ["0 entries", "1 entry", "2,039 entries"]
    assert [number_of(n, "key") for n in (1, 2039)] == ["1 key", "2039 keys"]
    assert [keys_and_entries(n, 1) for n in (1, None)] == ["1 key, 1 entry", "1 entry"]


def test_a_relative_path_may_lead_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real" / "below").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "below")
    monkeypatch.chdir(tmp_path / "real" / "below")
    assert path_of("../chk-1") == str(tmp_path / "real" / "chk-1")
    assert absolute_target("../savepoints") == str(tmp_path / "real" / "savepoints")
    assert absolute_target(str(tmp_path / "link" / ".." / "chk-1")) == str(tmp_path / "real" / "chk-1")
    assert absolute_target(str(tmp_path / "link" / "chk-1")) == str(tmp_path / "link" / "chk-1")


def test_a_path_through_other_links_is_that_of_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chk = tmp_path / "disk" / "sales" / "chk-5"
    chk.mkdir(parents=True)
    (tmp_path / "state").symlink_to(tmp_path / "disk")
    for root in (str(tmp_path / "state"), f"file://{tmp_path}/state/"):
        monkeypatch.setenv("STATELIB_STORAGE", root)
        monkeypatch.chdir(tmp_path / "state" / "sales")  # the working directory is /…/disk/sales for every process
        assert path_of("./chk-5") == str(tmp_path / "state" / "sales" / "chk-5")
        assert in_storage(f"file://{chk}/_metadata") == str(tmp_path / "state" / "sales" / "chk-5" / "_metadata")
        assert in_storage(str(tmp_path / "other")) == str(tmp_path / "other")
    monkeypatch.setenv("STATELIB_STORAGE", "s3://bucket/state")
    assert in_storage(str(chk)) == str(chk)


def test_a_relative_directory_may_have_a_colon_in_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_target("out/12:30") == str(tmp_path / "out" / "12:30")
    assert absolute({"/old": "./copy:1"}) == {"/old": str(tmp_path / "copy:1")}
    assert [absolute_target(uri) for uri in ("s3://b/12:30", "file:/a")] == ["s3://b/12:30", "file:/a"]


def test_a_rebuild_takes_a_relative_directory_of_savepoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[str] = []

    def plan(_planner: object, *, also: list[str], **_: object) -> None:
        places.extend(also)
        raise NotFoundError("no snapshot", kind="no-snapshots")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(catalogs, "plan_rebuild", plan)
    monkeypatch.setattr("statelib.flows.wiring.planning_deployment", nullcontext)
    CliRunner().invoke(app, ["catalog", "rebuild", "--dry-run", "--also", "backups"])
    assert places == [str(tmp_path / "backups")]


def test_a_directory_without_a_snapshot_does_not_hide_the_pipeline_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sales" / "5").mkdir(parents=True)
    (tmp_path / "chk-5").mkdir()
    (tmp_path / "chk-5" / "_metadata").touch()
    monkeypatch.chdir(tmp_path)
    assert [path_of(text) for text in ("sales", "sales/5", "chk-4")] == ["", "", ""]
    assert [path_of(text) for text in ("./sales", "chk-5", "chk-5/_metadata")] == [
        str(tmp_path / "sales"),
        str(tmp_path / "chk-5"),
        str(tmp_path / "chk-5" / "_metadata"),
    ]
    with pytest.raises(NotFoundError, match=r"sales: as a path, /.*/sales has no _metadata"), explained_as_id("sales"):
        raise NotFoundError("not there", kind="no-pipeline")
