"""Three runs: the first takes a checkpoint, the second builds on it, and the third builds on the second or on the
first.

Every run takes two checkpoints through the flows. Source: ResumeCheckpointManuallyITCase, requirements R160 to R163.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest

from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.retention import retire
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.record import ClaimMode
from tests.contract.catalog_kit import new_database, postgresql
from tests.support.extent import TEST_ALL, cases, name_of
from tests.support.tours import Tours, Way
from tests.support.worlds import day

__all__ = ["postgresql"]

BACKENDS = {
    "heap": ("heap", "canonical", "canonical"),
    "heap-native": ("heap", "full", "full"),
    "rocksdb-canonical": ("rocksdb", "canonical", "canonical"),
    "rocksdb-full": ("rocksdb", "full", "full"),
    "rocksdb-incremental": ("rocksdb", "incremental", "incremental"),
    "heap-changelog": ("heap", "changelog", "changelog"),
    "rocksdb-changelog": ("rocksdb", "changelog", "changelog"),
    "full-incremental-full": ("rocksdb", "full", "incremental"),
    "incremental-full-incremental": ("rocksdb", "incremental", "full"),
    "incremental-changelog-incremental": ("rocksdb", "incremental", "changelog"),
    "native-changelog-native": ("heap", "full", "changelog"),
}
"""Backend, strategy of runs 1 and 3, strategy of run 2: there are three backends, of which the first and the last
have the same settings (R162)."""

RESTORED_BY = ("id", "path")
"""The ways to restore: by id, the three runs are of one pipeline; by path, each is a pipeline of its own, in the
same storage."""


@pytest.fixture
def catalog_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return new_database(request.getfixturevalue("postgresql"))
    return f"sqlite:///{tmp_path}/catalog.db"


CASES = cases(
    tuple(BACKENDS), ("remote", "local"), tuple(ClaimMode), ("apart", "merged"), RESTORED_BY, ("sqlite", "postgresql")
)
ON_S3 = tuple(BACKENDS) if TEST_ALL else ("heap",)


@pytest.mark.parametrize(
    ("way", "local_recovery", "claim", "files", "by", "catalog_url"),
    CASES,
    ids=map(name_of, CASES),
    indirect=["catalog_url"],
)
def test_three_runs_restore_their_state_in_every_combination(
    tmp_path: Path, way: str, local_recovery: str, claim: ClaimMode, files: str, by: str, catalog_url: str
) -> None:
    _three_runs(Tours(tmp_path / "world", catalog_url), way, local_recovery, claim, files, by)


@pytest.mark.parametrize("way", ON_S3)
def test_three_runs_restore_their_state_on_s3(tmp_path: Path, bucket: str, way: str) -> None:
    tours = Tours(tmp_path / "world", storage_root=f"s3://{bucket}/state")
    _three_runs(tours, way, "remote", ClaimMode.NO_CLAIM, "apart", "id")


def test_a_claimed_base_of_another_pipeline_is_not_referred_to(tmp_path: Path) -> None:
    """The base's files are in a directory that checkpoints of this pipeline may not read; once claimed they belong
    to the system."""
    tours = Tours(tmp_path)
    tours.use(Way(), "one")
    first = tours.run(1, "one")
    tours.use(Way(renamed_from=("one",)), "two")
    tours.restore(_address(tours, first, "path"), ClaimMode.CLAIM, name="two")
    whole, sharing = tours.run(2, "two"), tours.run(3, "two")
    assert whole.uploaded_bytes == sum(file.size_bytes for file in whole.files)
    assert sharing.uploaded_bytes < sum(file.size_bytes for file in sharing.files)


def _three_runs(tours: Tours, way: str, local_recovery: str, claim: ClaimMode, files: str, by: str) -> None:
    backend, outer, inner = BACKENDS[way]
    names = ("tours",) * 3 if by == "id" else ("one", "two", "three")
    newest: list[CheckpointManifest] = []
    for number, (name, strategy) in enumerate(zip(names, (outer, inner, outer), strict=True)):
        former = () if by == "id" else names[:number]
        local, merged = local_recovery == "local", files == "merged"
        tours.use(Way(backend, strategy, local, merged, keep=3, renamed_from=former), name)
        # The run before is claimed. The first one is not claimed, because its checkpoint must stay unchanged.
        source = newest[number - 1 if claim is ClaimMode.CLAIM else 0] if newest else None
        if source is not None:
            tours.restore(_address(tours, source, by), claim, name=name)
        days = _days(tours, source)
        runs = [tours.run(day, name) for day in (days + 1, days + 2)]
        assert [run.strategy for run in runs] == [strategy] * 2
        newest.append(runs[-1])
    _check_what_is_left(tours, names, newest, claim)


def _address(tours: Tours, manifest: CheckpointManifest, by: str) -> str:
    record = tours.deployment.catalog().get(manifest.pipeline, manifest.checkpoint_id)
    return str(record.checkpoint_id) if by == "id" else record.directory


def _days(tours: Tours, manifest: CheckpointManifest | None) -> int:
    """Return the number of days whose events a checkpoint contains."""
    if manifest is None or manifest.position.interval is None:
        return 0
    return next(number for number in range(1, 9) if day(number) == manifest.position.interval)


def _check_what_is_left(
    tours: Tours, names: Sequence[str], newest: Sequence[CheckpointManifest], claim: ClaimMode
) -> None:
    """Assert what exists before and after gc: the last run's checkpoint, and with NO_CLAIM those of all runs, which
    nobody claimed."""
    valid = newest[2:] if claim is ClaimMode.CLAIM else newest
    for _ in range(2):
        for manifest in valid:
            tours.check(tours.opened(manifest.checkpoint_id, manifest.pipeline), _days(tours, manifest))
        if tours.deployment.root_uri().startswith("file:"):
            retire(tours.deployment)
            collect_garbage(tours.deployment)
