"""The orphan sweep of a pipeline looks at the places of its ended savepoints, which are their users'."""

from pathlib import Path

import pytest

from statelib.errors import NotFoundError
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.ids import AttemptId, PipelineName
from statelib.model.record import BeginRequest
from statelib.storage.objects.bucket import Bucket
from statelib.storage.uris import local_path
from tests.support.worlds import day, new_deployment

NAME = PipelineName("tally")


def aborted(deployment: Deployment, kind: SnapshotKind, directory: str, attempt: AttemptId) -> None:
    catalog, interval = deployment.catalog(), day(1) if kind is SnapshotKind.CHECKPOINT else None
    request = BeginRequest(NAME, kind, interval, "canonical", 1, "test", attempt)
    begun = catalog.begin(request, lambda number: f"{directory}-{number}")
    catalog.record_attempt(NAME, begun.checkpoint_id, attempt)
    catalog.abort(NAME, begun.checkpoint_id, "test")


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Return a deployment with an aborted savepoint in a bucket that is gone, and an aborted checkpoint."""

    def gone(_bucket: Bucket, prefix: str, at_most: int | None = None) -> None:
        raise NotFoundError(f"listing {at_most} of {prefix}: there is no such bucket", kind="no-bucket")

    monkeypatch.setattr(Bucket, "list", gone)
    made = new_deployment(tmp_path, tmp_path)
    aborted(made, SnapshotKind.SAVEPOINT, f"s3://gone/savepoint-{NAME}", AttemptId("a" * 32))
    aborted(made, SnapshotKind.CHECKPOINT, f"{made.root_uri()}/{NAME}/chk", AttemptId("b" * 32))
    return made


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_bucket_that_is_gone_does_not_end_the_sweep(deployment: Deployment, dry_run: bool) -> None:
    directory = Path(local_path(f"{deployment.root_uri()}/{NAME}/chk-2"))
    directory.mkdir(parents=True)
    (directory / f"{'b' * 32}-0-0").write_bytes(b"x")
    (swept,) = orphans(deployment, dry_run=dry_run)
    assert [uri.rpartition("/")[2] for uri in swept.files] == [f"{'b' * 32}-0-0"]
    assert directory.exists() is dry_run
