"""Commands that only plan, in a deployment whose catalog does not exist: they print the plan and leave no file."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from statelib.cli.main import app
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from tests.integration.shop import environment, open_shop
from tests.integration.shop_cli import call, refused, said
from tests.support.worlds import new_deployment

DAILY = """\
name: orders
schedule: {cron: "@daily", start: 2026-01-01}
source: {path: "{data}/{start:%Y-%m-%d}.parquet", columns: {shop: string, amount: long}}
key: [shop]
states: {total: {kind: value, value: {agg: sum, of: amount}}}
backend: heap
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Return a deployment in which no pipeline ever ran. ``temporary`` is the directory of temporary files."""
    for name in ("pipelines", "temporary"):
        (tmp_path / name).mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(DAILY)
    return new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def everything(root: Path) -> set[Path]:
    return set(root.rglob("*"))


def test_a_dry_run_lists_the_intervals_from_the_start_of_the_schedule(deployment: Deployment, tmp_path: Path) -> None:
    before = everything(tmp_path)
    output = said(deployment, "run", "orders", "--end", "2026-01-03", "--dry-run")
    assert "2026-01-01 00:00:00 to 2026-01-02 00:00:00 UTC" in output
    assert "2026-01-02 00:00:00 to 2026-01-03 00:00:00 UTC" in output
    assert len(json.loads(said(deployment, "run", "orders", "-n", "--json"))["intervals"]) == 1
    assert everything(tmp_path) == before


@pytest.fixture
def unlisted(tmp_path: Path) -> tuple[Deployment, str]:
    """Return a deployment whose catalog was deleted, and the directory of a snapshot."""
    shop = open_shop(tmp_path / "shop")
    directory = shop.catalog().get(PipelineName("sales"), CheckpointId(1)).directory
    Path(shop.catalog_url.removeprefix("sqlite:///")).unlink()
    (tmp_path / "temporary").mkdir()
    return shop, directory


def test_a_dry_run_of_a_restore_shows_the_plan_of_a_snapshot(unlisted: tuple[Deployment, str], tmp_path: Path) -> None:
    shop, directory = unlisted
    before = everything(tmp_path)
    assert directory in said(shop, "restore", "sales", directory, "--dry-run")
    assert "there is no catalog at" in refused(shop, "restore", "sales", "1", "--dry-run")
    assert everything(tmp_path) == before


def test_a_dry_run_of_a_rebuild_shows_the_entries(unlisted: tuple[Deployment, str], tmp_path: Path) -> None:
    shop, _ = unlisted
    before = everything(tmp_path)
    result = call(shop, "catalog", "rebuild", "--dry-run")
    assert (result.exit_code, "would be entered" in result.stderr) == (0, True)
    assert everything(tmp_path) == before


def test_a_refused_plan_creates_no_catalog_either(unlisted: tuple[Deployment, str], tmp_path: Path) -> None:
    shop, directory = unlisted
    before = everything(tmp_path)
    assert "there is no catalog at" in refused(shop, "restore", "sales", "1", "--yes")
    assert "of pipeline sales, not of tours" in refused(shop, "restore", "tours", directory, "--yes")
    rebuild = CliRunner().invoke(app, ["catalog", "rebuild"], input="n\n", env=environment(shop))
    assert rebuild.exit_code != 0
    assert everything(tmp_path) == before
