"""Retention, gc and the sweep of many pipelines: an error of one stops no other, and is named at the end."""

import json
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from statelib.errors import RetryableError, StatelibError
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState
from tests.integration.garbage import TALLY, events
from tests.integration.shop_cli import call
from tests.support.worlds import checkpoint_of, new_deployment

NAMES = ("alpha", "beta", "gamma")
Harm = Callable[[Deployment, Path], None]


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    for name in NAMES:
        (tmp_path / "pipelines" / f"{name}.yaml").write_text(TALLY.replace("name: tally", f"name: {name}"))
    made = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for name in NAMES:
        for number in range(1, 5):
            checkpoint_of(made, name, number, events(number))
    return made


def damage_row(deployment: Deployment, root: Path) -> None:
    with sqlite3.connect(root / "catalog.db") as file:
        file.execute("UPDATE checkpoint SET state = 'DONE' WHERE pipeline = 'alpha' AND checkpoint_id = 3")
    file.close()


def unlistable(deployment: Deployment, root: Path) -> None:
    """Replace the pipeline's directory by a file, so that listing it fails, even for root."""
    (root / "state" / "alpha").rename(root / "moved")
    (root / "state" / "alpha").symlink_to(root / "moved" / "chk-4" / "_metadata")


def forgotten(deployment: Deployment, root: Path) -> None:
    """Make a checkpoint that is not in the catalog."""
    (root / "state" / "alpha" / "chk-9").mkdir()
    (root / "state" / "alpha" / "chk-9" / "_metadata").write_bytes(b"")


HARMS = {"damaged row": damage_row, "storage": unlistable, "forgotten": forgotten}


def completed(deployment: Deployment, name: str) -> list[int]:
    return sorted(r.checkpoint_id for r in deployment.catalog().list(PipelineName(name), {CheckpointState.COMPLETED}))


@pytest.mark.parametrize("harm", HARMS)
def test_an_error_of_one_pipeline_does_not_stop_the_next_ones(
    deployment: Deployment, tmp_path: Path, harm: str
) -> None:
    HARMS[harm](deployment, tmp_path)
    for story in (retire, collect_garbage, lambda h: orphans(h, dry_run=False)):
        with pytest.raises(StatelibError, match="alpha") as trouble:
            story(deployment)
        assert "beta" not in trouble.value.message
    for name in NAMES[1:]:
        assert completed(deployment, name) == [3, 4]
        left = {path.name for path in (tmp_path / "state" / name).iterdir()}
        assert left == {"chk-3", "chk-4"}


@pytest.mark.parametrize("harm", HARMS)
def test_the_command_handles_the_other_pipelines_and_then_fails_by_name(
    deployment: Deployment, tmp_path: Path, harm: str
) -> None:
    HARMS[harm](deployment, tmp_path)
    result = call(deployment, "gc", "--json")
    assert result.exit_code == 1
    document = json.loads(result.stdout)
    assert [each["pipeline"] for each in document["troubles"]] == ["alpha"]
    assert {each["pipeline"] for each in document["collected"]} == {"beta", "gamma"}
    assert completed(deployment, "beta") == completed(deployment, "gamma") == [3, 4]
    swept = call(deployment, "orphans")
    assert (swept.exit_code, "in trouble: " in swept.stderr, "alpha" in swept.stderr) == (1, True, True)
    assert "0 orphans" in swept.stdout


def test_a_directory_that_is_not_in_the_catalog_prevents_any_deletion(deployment: Deployment, tmp_path: Path) -> None:
    """A directory that cannot be listed may belong to a fork, so that nothing is removed. A name that no pipeline can
    have prevents nothing."""
    (tmp_path / "state" / "lost+found").symlink_to(tmp_path / "nowhere")
    assert len(retire(deployment, dry_run=True)) == 3
    if os.geteuid() == 0:
        pytest.skip("root can list every directory")
    (tmp_path / "state" / "fork").mkdir(mode=0)
    with pytest.raises(StatelibError):
        retire(deployment)
    assert completed(deployment, "gamma") == [1, 2, 3, 4]


def test_several_failed_pipelines_give_one_error_that_names_them_all(deployment: Deployment, tmp_path: Path) -> None:
    damage_row(deployment, tmp_path)
    (tmp_path / "state" / "beta" / "chk-9").mkdir()
    (tmp_path / "state" / "beta" / "chk-9" / "_metadata").write_bytes(b"")
    with pytest.raises(StatelibError, match=r"2 pipelines have errors.*alpha/3.*beta") as trouble:
        retire(deployment)
    assert (trouble.value.kind, isinstance(trouble.value, RetryableError)) == ("pipelines-in-trouble", False)
    assert completed(deployment, "gamma") == [3, 4]
