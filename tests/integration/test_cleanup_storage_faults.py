"""A bucket is cleaned up while the storage fails. After another run, it contains exactly the files of living
checkpoints."""

from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import RetryableError, StatelibError
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage import registry
from statelib.storage.retries import Retries, wait_never
from tests.integration.garbage import days, directories, needed, save, stored, tally
from tests.support.fault_proxy import Fault
from tests.support.s3_endpoint import S3Endpoint

TALLY = PipelineName("tally")


@pytest.fixture
def deployment(s3: S3Endpoint, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    monkeypatch.setattr(registry, "RETRIES", Retries((0.0, 0.0), wait_never))
    return tally(tmp_path, storage_root=f"s3://{bucket}/state")


def is_whole(deployment: Deployment) -> None:
    for record in deployment.catalog().list(TALLY, {CheckpointState.COMPLETED}):
        assert verify_at(record.directory, own=True).problems == ()


def test_after_twenty_checkpoints_only_the_files_of_living_ones_are_left(deployment: Deployment) -> None:
    days(deployment, 1, 20)
    saved = save(deployment, "kept")
    assert len(directories(deployment)) == 21
    retire(deployment)
    (collected,) = collect_garbage(deployment)
    assert collected.checkpoints == tuple(range(1, 19))
    orphans(deployment, dry_run=False)
    assert stored(deployment) == needed(deployment)
    assert directories(deployment) == {"chk-19", "chk-20", f"savepoint-tally-{saved}"}
    is_whole(deployment)
    dispose(deployment, TALLY, CheckpointId(saved))
    assert stored(deployment) == needed(deployment)
    assert directories(deployment) == {"chk-19", "chk-20"}


BREAKS = [
    pytest.param(0, Fault("lost", "POST", "delete", 99), id="lost-at-once"),
    pytest.param(1, Fault("reset", "POST", "delete", 99), id="reset-between-metadata"),
    pytest.param(3, Fault("status", "POST", "delete", 99), id="503-before-directories"),
    pytest.param(4, Fault("truncate", "POST", "delete", 99), id="cut-in-directories"),
    pytest.param(0, Fault("truncate", "GET", "list-type", 99), id="half-a-listing"),
    pytest.param(1, Fault("status", "GET", "list-type", 99), id="no-listing"),
]


@pytest.mark.parametrize(("passed", "fault"), BREAKS)
def test_a_cleanup_interrupted_by_storage_failures_is_completed_later(
    deployment: Deployment, s3: S3Endpoint, passed: int, fault: Fault
) -> None:
    """The first ``passed`` requests of this kind succeed; the others fail."""
    days(deployment, 1, 5)
    retire(deployment)
    s3.break_next(replace(fault, times=1))
    collect_garbage(deployment)
    assert stored(deployment) == needed(deployment), "one bad answer is asked for again"
    days(deployment, 6, 8)
    retire(deployment)
    s3.break_next(Fault("slow", fault.method, fault.part, passed), fault)
    with pytest.raises(StatelibError) as failure:
        collect_garbage(deployment)
    assert isinstance(failure.value, RetryableError)
    s3.break_next()
    is_whole(deployment)
    assert needed(deployment) <= stored(deployment)
    collect_garbage(deployment)
    assert stored(deployment) == needed(deployment)
    assert directories(deployment) == {"chk-7", "chk-8"}
    is_whole(deployment)
