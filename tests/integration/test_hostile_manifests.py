"""Every checkpoint of every pipeline and every user's savepoint stays complete, whatever a foreign manifest
contains."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from statelib.errors import ConflictError, StatelibError
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest, FileRecord, Origin, SnapshotKind
from statelib.model.ids import MAX_NUMBER, AttemptId, CheckpointId, Epoch, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from tests.integration.garbage import TALLY as TALLY_FILE
from tests.integration.garbage import days, events, save, stored, tally
from tests.integration.hostile_snapshots import copied, described
from tests.support.extent import examples
from tests.support.s3_endpoint import S3Endpoint
from tests.support.worlds import checkpoint_of

GUEST, TALLY = PipelineName("guest"), PipelineName("tally")
INSIDE = (
    "", "tally", "tally/shared", "tally/taskowned", "tally/chk-99", "guest/chk-77", "savepoints/theirs",
    "savepoints/savepoint-guest-9",
)  # fmt: skip
"""Directories below the storage's root; the snapshot's own comes first."""
SPELLINGS = ("{root}//{path}", "{root}/./{path}", "../state/{path}", "{root}/savepoints/../{path}", "{path}")
MOSTLY = st.sampled_from([True, True, True, False])
"""Most of the content of a foreign manifest has to be right, otherwise all of it is refused."""


@dataclass
class World:
    """A deployment and its attacker. ``victims``: all snapshots from before the attack. ``numbers``: names for the
    attacker's directories."""

    deployment: Deployment
    victims: dict[str, FileRecord]
    numbers: Iterator[int] = field(default_factory=count)

    def broken(self) -> list[str]:
        records = self.deployment.catalog().list(None, (CheckpointState.COMPLETED,))
        verifications = (
            verify_at(r.directory, own=True, read_data=False, storage_root=self.deployment.storage_root)
            for r in records
        )
        return [problem for verification in verifications for problem in verification.problems]

    def remove_blocking(self) -> None:
        """Remove what is left in directories of the guest that the catalog does not have. They would end all that the
        next examples do."""
        listed = {r.directory.rstrip("/") for r in self.deployment.catalog().list(GUEST)}
        for uri in stored(self.deployment):
            directory = uri.rpartition("/")[0]
            if "/guest/chk-" in directory and directory not in listed:
                self.deployment.remover().remove_file(uri, (self.deployment.root_uri(),))

    def place(self, name: str) -> str:
        root = self.deployment.root_uri()
        if name == "elsewhere":
            return f"{root.rpartition('/')[0]}/stranger-{next(self.numbers)}"
        return f"{root}/{name}".rstrip("/")


def world(root: Path, storage_root: str = "") -> World:
    deployment = tally(root, storage_root=storage_root)
    file = TALLY_FILE.replace("name: tally", "name: guest\nuid: tally").replace("count: 2", "count: 1")
    (root / "pipelines" / "guest.yaml").write_text(file)
    days(deployment, 1, 2)
    save(deployment, "kept")
    checkpoint_of(deployment, "guest", 1, events(1))
    victims = {uri: described(uri) for uri in stored(deployment) if "/guest/" not in uri}
    return World(deployment, victims)


@pytest.fixture(scope="module")
def on_files(tmp_path_factory: pytest.TempPathFactory) -> World:
    return world(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def on_objects(tmp_path_factory: pytest.TempPathFactory, running_s3: S3Endpoint) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in running_s3.environment.items():
            patch.setenv(name, value)
        running_s3.make_bucket("strangers")
        yield world(tmp_path_factory.mktemp("objects"), "s3://strangers/base/state")


@st.composite
def forged(draw: st.DrawFn, world: World) -> tuple[str, CheckpointManifest]:
    """Return a directory, and the content of a foreign manifest in it."""
    root = world.deployment.root_uri()
    manifest = open_checkpoint(f"{root}/tally/chk-2").manifest
    assert manifest is not None
    metadata = [uri for uri in sorted(world.victims) if uri.endswith("/_metadata")]
    wanted = st.one_of(st.sampled_from(metadata), st.sampled_from(sorted(world.victims)))
    named = []
    for uri in draw(st.lists(wanted, min_size=1, max_size=4, unique=True)):
        path = uri.removeprefix(f"{root}/")
        spelled = uri if draw(MOSTLY) else draw(st.sampled_from(SPELLINGS)).format(root=root, path=path)
        named.append(replace(world.victims[uri], path=spelled))
    victim = draw(st.sampled_from(sorted(world.victims))).rpartition("/")[2].partition("-")[0]
    forged_manifest = replace(
        manifest,
        pipeline=GUEST if draw(MOSTLY) else TALLY,
        checkpoint_id=draw(
            st.sampled_from([manifest.checkpoint_id, CheckpointId(9), CheckpointId(77), CheckpointId(99)])
        ),
        kind=draw(st.sampled_from(SnapshotKind)),
        base=None,
        attempt=manifest.attempt if draw(MOSTLY) else AttemptId(draw(st.sampled_from([victim, "0" * 32]))),
        epoch=Epoch(draw(st.integers(0, MAX_NUMBER))),
        origins=draw(st.sampled_from([(), (Origin(TALLY, CheckpointId(3)),)])),
        files=(*(manifest.files if draw(MOSTLY) else ()), *(named if draw(MOSTLY) else ())),
    )
    return "elsewhere" if draw(MOSTLY) else draw(st.sampled_from(INSIDE)), forged_manifest


def endured(world: World, data: st.DataObject) -> None:
    deployment = world.deployment
    name, manifest = data.draw(forged(world))
    mode = data.draw(st.sampled_from(ClaimMode))
    place, before = world.place(name), stored(deployment)
    copied(f"{deployment.root_uri()}/tally/chk-2", place, lambda _: manifest)
    taken = None
    pipeline = deployment.pipeline(GUEST)
    with contextlib.suppress(StatelibError):
        taken = apply_restore(deployment, pipeline, plan_restore(deployment, pipeline, place, None, mode), "test").head
    if taken is None:
        for uri in stored(deployment) - before:
            deployment.remover().remove_file(uri, (deployment.root_uri(),))
    else:
        with unless_behind():
            for number in (3, 4):
                checkpoint_of(deployment, GUEST, number, events(number))
            if mode is ClaimMode.NO_CLAIM:
                dispose(deployment, GUEST, taken)
    for collect in (retire, collect_garbage, partial(orphans, dry_run=False, force=True)):
        with unless_behind():
            collect(deployment)
    assert set(world.victims) <= stored(deployment)
    assert world.broken() == []
    world.remove_blocking()


@contextlib.contextmanager
def unless_behind() -> Iterator[None]:
    """End the block where a pipeline has a directory on storage that the catalog does not have: nothing is begun or
    deleted then."""
    try:
        yield
    except ConflictError as error:
        if error.kind != "catalog-behind-storage":
            raise


SLOW = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)


@SLOW
@given(st.data())
def test_a_foreign_manifest_cannot_delete_files(on_files: World, data: st.DataObject) -> None:
    endured(on_files, data)


@settings(SLOW, max_examples=examples(10))
@given(st.data())
def test_a_foreign_manifest_cannot_delete_objects(on_objects: World, data: st.DataObject) -> None:
    endured(on_objects, data)
