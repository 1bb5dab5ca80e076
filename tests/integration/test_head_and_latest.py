"""``head`` and ``latest`` instead of an id: on the command line, in a restore and in Spark."""

import json
from pathlib import Path

import pytest

from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.record import ClaimMode
from statelib.spark.dataframe.options import snapshot_of
from tests.integration.shop import environment, open_shop
from tests.integration.shop_cli import refused, said


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
    assert number(said(shop, "checkpoints", "show", "sales/latest", "--json")) == 5
    assert json.loads(said(shop, "inspect", "sales/latest", "--json"))["checkpoint_id"] == 5
    for name in ("head", "1"):
        said(shop, "export", f"sales/{name}", "--state", "total", "-o", tmp_path / name)
    assert (tmp_path / "head").read_bytes() == (tmp_path / "1").read_bytes()
    assert "chk-5" in said(shop, "verify", "sales/latest")
    by_name = said(shop, "checkpoints", "diff", "sales/head", "sales/latest", "--json")
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


def test_commands_that_delete_accept_only_ids(shop: Deployment) -> None:
    assert "expected <pipeline>/<id>" in refused(shop, "checkpoints", "dispose", "sales/latest")


def test_spark_loads_head_and_latest(shop: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(shop).items():
        monkeypatch.setenv(name, value)
    opened = snapshot_of({"path": "sales/head"})
    assert opened.directory == resolve(shop, "sales/1").directory
