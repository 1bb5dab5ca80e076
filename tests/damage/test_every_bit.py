"""No bit of a checkpoint can change, and no file be cut, exchanged or lost, without a typed error that names the file
before any state is served; and ``verify`` finds it too."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from statelib.errors import StatelibError
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at, wrong_files
from tests.damage.harm import Harm, done, every_bit, every_length, missing, one_bit_a_byte, wholesale
from tests.damage.ways import WAYS, Stored, Way, stored
from tests.support.extent import rounds
from tests.support.figures import record

SEED = 20130101
METADATA, DATA, RESTORES = rounds(120, 3_000), rounds(50, 3_000), rounds(12, 50)
"""The numbers for each combination: kinds of damage to ``_metadata``, kinds of damage to data files, and those of
them after which the state is restored, which takes a hundred times as long as verifying the file."""


@pytest.fixture(scope="module", params=WAYS, ids=str)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    way: Way = request.param
    made = stored(tmp_path_factory.mktemp("stored") / "world", way)
    assert made.restore()
    assert verify(made) == ()
    yield made
    assert made.restore(), "every file is as it was"


def verify(made: Stored) -> tuple[str, ...]:
    deployment = made.deployment
    return verify_at(
        str(made.directory), own=True, storage_root=deployment.storage_root, scratch=deployment.work_directory
    ).problems


def some(harms: list[Harm], most: int, random: Random) -> list[Harm]:
    return harms if len(harms) <= most else random.sample(harms, most)


def test_damaged_metadata_is_never_read(whole: Stored) -> None:
    metadata, random = whole.files[0], Random(SEED)
    harms = [missing(metadata), *some([*every_bit(metadata), *every_length(metadata)], METADATA, random)]
    tried = 0
    for harm in harms:
        with done(harm):
            for own in (True, False):
                with pytest.raises(StatelibError) as refused:
                    open_checkpoint(str(whole.directory), own=own, storage_root=whole.deployment.storage_root)
                assert "_metadata" in refused.value.message, harm.what
            (problem,) = verify(whole)
            assert "_metadata" in problem, harm.what
        tried += 1
    record("G3", "damage to _metadata", tried, unit="mutations")


def test_damage_to_a_file_is_detected_and_named(whole: Stored) -> None:
    opened, random = whole.open(), Random(SEED)
    assert opened.manifest is not None
    records = {whole.directory / f.path.removeprefix("file://"): f for f in opened.manifest.files}
    flips = [harm for path in records for harm in one_bit_a_byte(path, random)]
    cuts = [harm for path in records for harm in every_length(path)]
    harms = [*some(wholesale(tuple(records)), DATA, random), *some(flips, DATA, random), *some(cuts, DATA, random)]
    for harm in harms:
        with done(harm):
            wrong = [records[path] for path in harm.files]
            problems = wrong_files(opened, wrong, wrong)
            assert len(problems) == len(wrong), harm.what
            assert all(path.name in problem for path, problem in zip(harm.files, problems, strict=True)), harm.what
    for harm in random.sample(harms, min(len(harms), RESTORES)):
        with done(harm):
            assert any(path.name in problem for path in harm.files for problem in verify(whole)), harm.what
    record("G3", "damage to data files", len(harms), unit="mutations")


def test_nothing_is_restored_from_damage(whole: Stored) -> None:
    random, files, not_read = Random(SEED + 1), whole.files[1:], whole.not_read()
    harms = [*wholesale(files), *(harm for path in files for harm in one_bit_a_byte(path, random))]
    harms = some([harm for harm in harms if not _only_in(harm, not_read)], RESTORES, random)
    for harm in harms:
        with done(harm), pytest.raises(StatelibError) as refused:
            whole.restore()
        assert any(path.name in refused.value.message for path in harm.files), f"{harm.what}: {refused.value}"
    record("G4", "restores from damaged files", len(harms))


def _only_in(harm: Harm, places: list[tuple[Path, range]]) -> bool:
    if harm.place is None:
        return any(harm.files == (path,) and path.stat().st_size == len(held) for path, held in places)
    at = harm.place
    return any(harm.files == (path,) and at.start < held.stop and held.start < at.stop for path, held in places)


def test_files_that_do_not_belong_to_a_snapshot_are_not_read(whole: Stored) -> None:
    for name, content in (("000099.sst", b"x" * 100), ("rocksdict-config.json", b"{}"), ("_metadata.bak", b"")):
        extra = whole.directory / name
        extra.write_bytes(content)
        try:
            assert whole.restore()
            assert verify(whole) == ()
        finally:
            extra.unlink()
