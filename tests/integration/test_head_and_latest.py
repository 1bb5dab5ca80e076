"""``head`` and ``latest`` instead of an id: on the command line, in a restore and in Spark."""

import json
from pathlib import Path

import pytest

from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.record import ClaimMode
from statelib.spark.dataframe.options import snapshot_of
from tests.integration.shop import environment, open_shop, sales
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import checkpoint_of


@pytest.fixture
def shop(tmp_path: Path) -> Deployment:
    """Return a deployment whose pipeline sales was restored to 1, although 5 is completed too."""
    deployment = open_shop(tmp_path)
    pipeline = deployment.pipeline("sales")
    apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM), "test")
    return deployment


def number(text: str) -> object:
    return json.loads(text)["checkpoint_id"]


def test_head_is_the_base_of_the_next_run_and_latest_the_newest_checkpoint(shop: Deployment, tmp_path: Path) -> None:
    assert number(said(shop, "checkpoints", "show", "sales/head", "--json")) == 1
    assert number(said(shop, "checkpoints", "show", "sales", "--json")) == 1
    assert number(said(shop, "checkpoints", "show", "sales/latest", "--json")) == 5
    assert json.loads(said(shop, "inspect", "sales/latest", "--json"))["checkpoint_id"] == 5
    for name in ("head", "1"):
        said(shop, "export", f"sales/{name}", "--state", "total", "-o", tmp_path / name)
    assert (tmp_path / "head").read_bytes() == (tmp_path / "1").read_bytes()
    assert ["chk-1" in said(shop, "verify", "sales"), "chk-5" in said(shop, "verify", "sales/latest")] == [True, True]
    by_name = said(shop, "checkpoints", "diff", "sales", "sales/latest", "--json")
    assert json.loads(by_name) == json.loads(said(shop, "checkpoints", "diff", "sales/1", "sales/5", "--json"))


def test_a_restore_accepts_head_and_latest(shop: Deployment) -> None:
    plan = json.loads(said(shop, "restore", "sales", "latest", "--dry-run", "--json"))
    assert plan == json.loads(said(shop, "restore", "sales", "5", "--dry-run", "--json"))
    assert "sales" in said(shop, "restore", "sales", "sales/head", "--dry-run", "--json")


def test_a_pipeline_without_head_or_checkpoints_is_an_error(shop: Deployment) -> None:
    new = Path(shop.pipelines_directory) / "new.yaml"
    new.write_text((new.parent / "tours.yaml").read_text().replace("name: tours", "name: new"))
    assert "new/head: pipeline new has no head" in refused(shop, "inspect", "new/head")
    assert "new/latest: pipeline new has no completed checkpoint" in refused(shop, "inspect", "new/latest")
    assert "pipeline 'none' is neither in the catalog nor in" in refused(shop, "inspect", "none/head")
    assert "pipeline 'none' is neither in the catalog nor in" in refused(shop, "inspect", "none")
    assert "ids count per pipeline" in refused(shop, "inspect", "5")


@pytest.mark.parametrize("word", ["head", "latest"])
def test_the_state_of_a_renamed_pipeline_has_its_former_name_until_its_first_run(shop: Deployment, word: str) -> None:
    file = Path(shop.pipelines_directory) / "sales.yaml"
    file.write_text(file.read_text().replace("name: sales", "name: shops\nrenamed_from: [purchases, sales]"))
    result = call(shop, "inspect", f"shops/{word}")
    assert (result.exit_code, f"until its first run, its state is sales/{word}" in result.stderr) == (2, True)
    checkpoint_of(shop, "shops", 2, sales(3))
    said(shop, "inspect", f"shops/{word}")


def test_commands_that_delete_accept_only_ids(shop: Deployment) -> None:
    assert "expected <pipeline>/<id>" in refused(shop, "checkpoints", "dispose", "sales/latest")
    assert "expected <pipeline>/<id>" in refused(shop, "checkpoints", "dispose", "sales")


def test_spark_loads_head_and_latest(shop: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(shop).items():
        monkeypatch.setenv(name, value)
    opened = snapshot_of({"path": "sales/head"})
    assert opened.directory == resolve(shop, "sales/1").directory


def test_a_moment_names_the_state_of_that_time(shop: Deployment) -> None:
    """The head is 1, whose interval is the first day; 2 and 5 have the second day, but are not in its history."""
    assert number(said(shop, "inspect", "sales@2013-01-02", "--json")) == 1
    assert number(said(shop, "inspect", "sales@2014-01-01T06:30", "--json")) == 1
    refusal = refused(shop, "inspect", "sales@2013-01-01T23:59:59")
    assert "no interval in the history of pipeline sales had ended" in refusal
    second = checkpoint_of(shop, "sales", 2, sales(50))
    for moment, expected in (
        ("2013-01-02", 1),
        ("2013-01-02T23:59", 1),
        ("2013-01-03", second),
        ("2013-02-01", second),
    ):
        assert number(said(shop, "checkpoints", "show", f"sales@{moment}", "--json")) == expected
    assert json.loads(said(shop, "query", "sales@2013-01-02", "SELECT sum(sold)::int FROM total", "--json"))[
        "rows"
    ] == [[6]]
    assert "'2013-13-01' is no time" in refused(shop, "inspect", "sales@2013-13-01")
    plan = json.loads(said(shop, "restore", "sales", "sales@2013-01-02", "--dry-run", "--json"))
    assert plan == json.loads(said(shop, "restore", "sales", "1", "--dry-run", "--json"))


def test_a_moment_is_in_the_time_zone_of_the_schedule(shop: Deployment) -> None:
    file = Path(shop.pipelines_directory) / "sales.yaml"
    file.write_text(file.read_text() + 'schedule: {cron: "@daily", start: 2013-01-01, time_zone: America/New_York}\n')
    refused(shop, "inspect", "sales@2013-01-01T18:59")
    assert number(said(shop, "inspect", "sales@2013-01-01T19:00", "--json")) == 1
    assert number(said(shop, "inspect", "sales@2013-01-02T00:00Z", "--json")) == 1


def test_a_moment_whose_checkpoint_is_deleted_is_refused(shop: Deployment) -> None:
    """An older checkpoint does not have the events of that time."""
    file = Path(shop.pipelines_directory) / "sales.yaml"
    file.write_text(file.read_text().replace("checkpoint: {", "checkpoint: {retain: {count: 1}, "))
    ids = [checkpoint_of(shop, "sales", number_of_day, sales(10 * number_of_day)) for number_of_day in (2, 3)]
    said(shop, "gc")
    refusal = refused(shop, "inspect", "sales@2013-01-03")
    assert "checkpoint sales@2013-01-03 is deleted" in refusal or "is deleting" in refusal
    assert number(said(shop, "inspect", "sales@2013-01-04", "--json")) == ids[-1]
