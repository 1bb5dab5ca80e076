"""A forged savepoint removes nothing: no checkpoint of another pipeline, and no savepoint of a user."""

from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from tests.integration.garbage import TALLY as TALLY_FILE
from tests.integration.garbage import days, events, save, stored, tally
from tests.integration.hostile_snapshots import also_naming, copied, described
from tests.support.worlds import checkpoint_of

GUEST = PipelineName("guest")


@pytest.fixture(params=["files", "s3", "azure"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    """Return a deployment with a pipeline that has checkpoints and a savepoint, and a second one that restores a
    foreign savepoint."""
    root = ""
    if request.param != "files":
        scheme, fixture = {"s3": ("s3", "bucket"), "azure": ("az", "container")}[request.param]
        root = f"{scheme}://{request.getfixturevalue(fixture)}/base/state"
    made = tally(tmp_path, storage_root=root)
    (tmp_path / "pipelines" / "guest.yaml").write_text(TALLY_FILE.replace("name: tally", "name: guest\nuid: tally"))
    days(made, 1, 2)
    save(made, "kept")
    checkpoint_of(made, "guest", 1, events(1))
    return made


def broken(deployment: Deployment) -> list[str]:
    """Return the problems of all COMPLETED checkpoints and savepoints."""
    records = deployment.catalog().list(None, (CheckpointState.COMPLETED,))
    verifications = (verify_at(r.directory, own=True, storage_root=deployment.storage_root) for r in records)
    return [problem for verification in verifications for problem in verification.problems]


def as_guest(manifest: CheckpointManifest) -> CheckpointManifest:
    return replace(manifest, pipeline=GUEST)


def elsewhere(deployment: Deployment, name: str) -> str:
    """Return a directory of somebody else, outside the storage's root."""
    return f"{deployment.root_uri().rpartition('/')[0]}/{name}"


def restored(deployment: Deployment, directory: str, mode: ClaimMode) -> None:
    pipeline = deployment.pipeline(GUEST)
    head = apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, directory, None, mode), "test")
    checkpoint_of(deployment, GUEST, 3, events(3))
    if mode is ClaimMode.NO_CLAIM:
        assert head.head is not None
        dispose(deployment, GUEST, head.head)
    for number in range(4, 8):
        checkpoint_of(deployment, GUEST, number, events(number))


def cleaned(deployment: Deployment) -> None:
    retire(deployment)
    collect_garbage(deployment)
    orphans(deployment, dry_run=False, force=True)


@pytest.mark.parametrize("mode", ClaimMode)
def test_a_manifest_that_names_foreign_files_is_refused(deployment: Deployment, mode: ClaimMode) -> None:
    tally_root, victims = f"{deployment.root_uri()}/tally", stored(deployment)
    source = f"{tally_root}/chk-2"
    named = [uri for uri in sorted(victims) if not uri.startswith(source) or uri.endswith("_metadata")]
    bad = also_naming(*map(described, named))
    stranger = copied(source, elsewhere(deployment, "stranger"), lambda manifest: as_guest(bad(manifest)))
    with pytest.raises(InvalidRequestError) as refusal:
        restored(deployment, stranger, mode)
    assert refusal.value.kind == "foreign-file"
    assert deployment.catalog().list(GUEST)[0].checkpoint_id == 1, "nothing was adopted"
    cleaned(deployment)
    assert stored(deployment) >= victims
    assert broken(deployment) == []


@pytest.mark.parametrize("mode", ClaimMode)
def test_a_valid_foreign_snapshot_is_deleted_with_the_pipeline_that_claimed_it(
    deployment: Deployment, mode: ClaimMode
) -> None:
    mine = copied(f"{deployment.root_uri()}/tally/chk-2", elsewhere(deployment, "mine"), as_guest)
    restored(deployment, mine, mode)
    cleaned(deployment)
    assert deployment.remover().list_files(mine) == [], "claimed, or disposed of"
    assert broken(deployment) == []


def test_gc_refuses_foreign_files_in_rows_of_an_older_catalog(deployment: Deployment) -> None:
    """The rows were entered before manifests were checked: of a ``_metadata``, of another pipeline's files and a
    pending checkpoint's files."""
    victims = stored(deployment)
    mine = copied(f"{deployment.root_uri()}/tally/chk-2", elsewhere(deployment, "mine"), as_guest)
    opened = open_checkpoint(mine, storage_root=deployment.storage_root)
    facts = commit_facts(opened, "")
    named = tuple(described(uri) for uri in sorted(victims) if uri.endswith("_metadata"))
    row = deployment.catalog().import_savepoint(
        GUEST,
        directory=mine,
        strategy="canonical",
        parallelism=2,
        interval=None,
        facts=replace(facts, files=(*facts.files, *named)),
    )
    would = dispose(deployment, GUEST, row.checkpoint_id, dry_run=True)
    done = dispose(deployment, GUEST, row.checkpoint_id)
    assert set(done.refused) == {file.path for file in named}
    assert (would.files, would.refused) == (done.files, done.refused)
    cleaned(deployment)
    assert stored(deployment) >= victims
    assert deployment.remover().list_files(mine) == []
