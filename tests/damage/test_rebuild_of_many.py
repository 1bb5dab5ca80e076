"""The catalog is lost: all of a long history is found again on storage, nothing that was not part of it, and nothing is
deleted."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from sqlalchemy import create_engine, select

from statelib.catalog.tables.schema import CHECKPOINT, REF
from statelib.flows.recovery.rebuild import apply_rebuild, plan_rebuild
from statelib.flows.wiring import Deployment
from statelib.formats.manifest.trailer import append_manifest, read_checkpoint_file
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.checkpoint import CheckpointManifest, CheckpointMetadata, SourcePosition
from statelib.model.ids import AttemptId, CheckpointId, Epoch
from statelib.model.record import CheckpointState
from statelib.wire.checksum import content_hash, crc32c
from tests.damage.ways import Stored, Way, stored
from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.worlds import day

CHECKPOINTS, FILES = rounds(40, 1000), rounds(12, 100)


@pytest.fixture
def history(tmp_path: Path) -> Stored:
    """Make two real checkpoints, and so many after them with the state of the second, in the given number of files."""
    made = stored(tmp_path / "world", Way("heap", "canonical"))
    metadata, manifest = read_checkpoint_file(made.files[0].read_bytes())
    assert manifest is not None
    for number in range(3, CHECKPOINTS + 1):
        write(made, metadata, manifest, number)
    return made


def write(made: Stored, metadata: CheckpointMetadata, like: CheckpointManifest, number: int) -> Path:
    directory = made.directory.parent / f"chk-{number}"
    directory.mkdir()
    for path in made.files[1:]:
        shutil.copy(path, directory)
    more = []
    for count in range(FILES - len(like.files)):
        content = f"{number} {count}".encode()
        name = f"{number:032x}-0-{count}"
        (directory / name).write_bytes(content)
        size, crc, hashed = len(content), crc32c(content), content_hash(content).xxh3
        more.append(replace(like.files[0], path=name, size_bytes=size, crc32c=crc, xxh3=hashed))
    manifest = replace(
        like,
        checkpoint_id=CheckpointId(number),
        base=CheckpointId(number - 1),
        epoch=Epoch(number),
        attempt=AttemptId(f"{number:032x}"),
        position=SourcePosition(day(number), day(number).end_ms),
        created_at_ms=like.created_at_ms + number,
        files=(*like.files, *more),
    )
    flink = encode_metadata(replace(metadata, checkpoint_id=CheckpointId(number)))
    (directory / "_metadata").write_bytes(append_manifest(flink, manifest))
    return directory


def rows(deployment: Deployment) -> tuple[dict[int, str], list[tuple[int, str]]]:
    """Return (state by checkpoint id, references)."""
    engine = create_engine(deployment.catalog_url)
    with engine.connect() as connection:
        states = connection.execute(select(CHECKPOINT.c.checkpoint_id, CHECKPOINT.c.state)).tuples().all()
        references = connection.execute(select(REF.c.checkpoint_id, REF.c.file_id)).tuples().all()
    engine.dispose()
    return dict(states), sorted(references)


def listing(root: Path) -> list[tuple[str, int]]:
    return sorted((str(path), path.stat().st_size) for path in root.rglob("*") if path.is_file())


def rebuilt(history: Stored, name: str) -> tuple[Deployment, float]:
    deployment = replace(history.deployment, catalog_url=f"sqlite:///{history.deployment.work_directory}/{name}.db")
    began = monotonic()
    apply_rebuild(deployment, plan_rebuild(deployment))
    return deployment, monotonic() - began


def damaged(history: Stored) -> Sequence[int]:
    """Damage the history: a truncated ``_metadata``, a lost file and a truncated one; and add a checkpoint in the
    middle that no other was built on."""
    root, numbers = history.directory.parent, (5, 11, 17)
    torn, lost, short = (root / f"chk-{number}" for number in numbers)
    (torn / "_metadata").write_bytes((torn / "_metadata").read_bytes()[:-5])
    next(lost.glob("*-0-1")).unlink()
    cut = next(short.glob("*-0-2"))
    cut.write_bytes(cut.read_bytes()[:-1])
    return numbers


@pytest.mark.timeout(rounds(300, 1800))
def test_a_long_history_is_rebuilt_from_the_storage(history: Stored) -> None:
    root = history.directory.parent
    before = listing(root)
    deployment, seconds = rebuilt(history, "first")
    states, references = rows(deployment)
    assert states == dict.fromkeys(range(1, CHECKPOINTS + 1), CheckpointState.COMPLETED)
    assert len(references) == sum(len(files(root, number)) for number in states)
    assert listing(root) == before
    assert deployment.catalog().head(deployment.pipeline("shops").name).head == CHECKPOINTS
    record("G7", f"rebuild of {CHECKPOINTS} checkpoints of {FILES} files", seconds, unit="s")
    bad = damaged(history)
    before = listing(root)
    again, _ = rebuilt(history, "second")
    result, _ = rows(again)
    assert {number for number, state in result.items() if state == CheckpointState.COMPLETED} == set(states) - set(bad)
    assert listing(root) == before
    record("G7", "damaged checkpoints, none of them COMPLETED", len(bad), unit="checkpoints")


def files(root: Path, number: int) -> list[str]:
    _, manifest = read_checkpoint_file((root / f"chk-{number}" / "_metadata").read_bytes())
    assert manifest is not None
    return [file.path for file in manifest.files]
