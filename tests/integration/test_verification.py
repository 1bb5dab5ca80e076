"""Verifying a pipeline as a whole: all its files, and a sample of their bytes."""

from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.flows.views.inspection import completed
from statelib.flows.views.verification import VerifiedPipeline, verify_pipeline
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.savepoints.opened import open_checkpoint
from tests.integration.garbage import days, tally
from tests.integration.shop import open_shop
from tests.integration.shop_cli import said

SALES = PipelineName("sales")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return open_shop(tmp_path)


def files(deployment: Deployment, number: int) -> list[Path]:
    return sorted(p for p in Path(deployment.storage_root, SALES, f"chk-{number}").glob("*-*") if p.is_file())


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def seeds(deployment: Deployment, subset: str) -> list[VerifiedPipeline]:
    return [verify_pipeline(deployment, SALES, subset=subset, seed=str(seed)) for seed in range(30)]


def test_complete_checkpoints_have_no_problems(deployment: Deployment) -> None:
    whole = verify_pipeline(deployment, SALES)
    opened = [
        open_checkpoint(r.directory, own=True, storage_root=deployment.storage_root)
        for r in completed(deployment, SALES)
    ]
    total = [f.size_bytes for o in opened if o.manifest for f in o.manifest.files]
    assert (whole.problems, whole.checkpoints) == ((), 4)
    assert (whole.files, whole.files_read, whole.bytes_read) == (len(total), len(total), sum(total))


def test_a_sample_reads_a_file_of_each_checkpoint_and_repeated_samples_detect_damage(
    deployment: Deployment,
) -> None:
    small = verify_pipeline(deployment, SALES, subset="0.001%")
    assert (small.files_read, small.problems) == (small.checkpoints, ())
    parts = [verify_pipeline(deployment, SALES, subset=f"{n}/3") for n in (1, 2, 3)]
    assert sum(part.files_read for part in parts) == small.files == 2 * small.files_read
    flip(files(deployment, 5)[0])
    has_problems = [bool(each.problems) for each in seeds(deployment, "10%")]
    assert 0 < sum(has_problems) < len(has_problems), "each seed reads other files"
    assert all(
        f"{files(deployment, 5)[0].name} " in each.problems[0] for each in seeds(deployment, "10%") if each.problems
    )
    assert all(each.problems for each in seeds(deployment, "100%"))


def test_a_missing_or_truncated_file_is_detected_by_every_sample(deployment: Deployment) -> None:
    lost, short = files(deployment, 2)[0], files(deployment, 5)[0]
    lost.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    for each in seeds(deployment, "0.1%"):
        assert len(each.problems) == 2
        assert any(lost.name in p and "found no file" in p and "sales/2" in p for p in each.problems)
        assert any(short.name in p and "sales/5" in p for p in each.problems)


def test_a_checkpoint_without_metadata_is_one_problem_and_the_others_are_verified(deployment: Deployment) -> None:
    Path(deployment.storage_root, SALES, "chk-2", "_metadata").unlink()
    flip(files(deployment, 1)[0])
    problems = verify_pipeline(deployment, SALES).problems
    assert sorted(p.split(":")[0] for p in problems) == ["checkpoint sales/1", "checkpoint sales/2"]


@pytest.mark.parametrize("room", ["statelib.flows.views.verification", "statelib.cli.commands.reading.verifying"])
def test_a_checkpoint_that_is_deleted_meanwhile_is_not_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: str
) -> None:
    deployment = tally(tmp_path)
    days(deployment, 1, 4)
    records = completed(deployment, PipelineName("tally"))
    retire(deployment)
    collect_garbage(deployment)
    monkeypatch.setattr(f"{room}.completed", lambda *_: records)
    if room.endswith("verifying"):
        assert len(said(deployment, "verify", "-p", "tally").splitlines()) == 2
    else:
        result = verify_pipeline(deployment, "tally")
        assert (result.checkpoints, result.problems) == (2, ())


def test_an_invalid_subset_and_an_unknown_pipeline_are_refused(deployment: Deployment) -> None:
    for subset in ("0%", "-1%", "101%", "10", "4/3"):
        with pytest.raises(InvalidRequestError) as wrong:
            verify_pipeline(deployment, SALES, subset=subset)
        assert wrong.value.kind == "bad-subset"
    with pytest.raises(NotFoundError):
        verify_pipeline(deployment, "rentals")
