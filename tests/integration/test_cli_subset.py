"""``statelib verify --read-data-subset``: what is read is proved, what is not read has to be there."""

import json
from pathlib import Path

import pytest

from statelib.flows.wiring import Deployment
from tests.integration.shop import open_shop
from tests.integration.shop_cli import call, refused, said
from tests.integration.test_incremental_flow import TOURS as SHARING
from tests.integration.test_incremental_flow import events
from tests.support.worlds import checkpoint_of, new_deployment


@pytest.fixture
def shop(tmp_path: Path) -> Deployment:
    return open_shop(tmp_path)


def data_files(deployment: Deployment) -> list[Path]:
    return sorted(path for path in Path(deployment.storage_root).rglob("*-0-*") if path.is_file())


def test_damage_is_detected_by_the_part_that_reads_it(shop: Deployment) -> None:
    damaged = data_files(shop)[0]
    damaged.write_bytes(bytes(len(damaged.read_bytes())))
    assert call(shop, "verify").exit_code == 1
    statuses = [call(shop, "verify", "--read-data-subset", f"{n}/4").exit_code for n in (1, 2, 3, 4)]
    assert sorted(statuses) == [0, 0, 0, 1]
    assert call(shop, "verify", "--read-data-subset", "100%").exit_code == 1


def test_a_missing_file_is_detected_by_every_part(shop: Deployment) -> None:
    data_files(shop)[0].unlink()
    assert {call(shop, "verify", "--read-data-subset", f"{n}/4").exit_code for n in (1, 2, 3, 4)} == {1}


def read(shop: Deployment, seed: str) -> int:
    answer = json.loads(said(shop, "verify", "--read-data-subset", "50%", "--seed", seed, "--json"))
    return sum(each["files_read"] - 1 for each in answer)


def test_the_seed_is_shown_and_chooses_the_same_files(shop: Deployment) -> None:
    answer = json.loads(said(shop, "verify", "--read-data-subset", "10%", "--json"))
    (seed,) = {each["subset_seed"] for each in answer}
    again = json.loads(said(shop, "verify", "--read-data-subset", "10%", "--seed", seed, "--json"))
    assert again == answer
    assert len({read(shop, seed) for seed in "abcdefgh"}) > 1, "other files with another seed"
    assert (
        f"--seed {seed} reads the same ones" in call(shop, "verify", "--read-data-subset", "10%", "--seed", seed).stderr
    )
    assert {each["subset_seed"] for each in json.loads(said(shop, "verify", "--json"))} == {None}


def test_contradictory_or_useless_options_are_refused(shop: Deployment) -> None:
    assert "--seed goes with" in refused(shop, "verify", "--seed", "1")
    assert "expected one of them" in refused(shop, "verify", "--no-read-data", "--read-data-subset", "5%")
    assert "expected a percentage or a part" in refused(shop, "verify", "--read-data-subset", "5")


def test_a_file_that_checkpoints_share_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "tours.yaml").write_text(SHARING)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    for number in (1, 2, 3):
        checkpoint_of(deployment, "tours", number, events(number))
    answer = json.loads(said(deployment, "verify", "--read-data-subset", "100%", "--json"))
    written = [p for p in Path(deployment.storage_root).rglob("*") if p.is_file() and p.name != "_metadata"]
    assert sum(each["files_read"] - 1 for each in answer) == len(written) < sum(each["files"] - 1 for each in answer)
