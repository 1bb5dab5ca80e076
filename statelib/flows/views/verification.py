"""The story of verifying a pipeline: its completed checkpoints are there, and a sample of their bytes is as written."""

from dataclasses import dataclass

from statelib.errors import CorruptStateError, NotFoundError
from statelib.flows.views.inspection import check_pipeline, completed
from statelib.flows.wiring import Deployment
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.sampling import picked, sample
from statelib.savepoints.verification import unseen, verify, wrong_files


@dataclass(frozen=True)
class VerifiedPipeline:
    """What :func:`verify_pipeline` looked at. ``files`` that checkpoints share count once. No problems = whole."""

    pipeline: str
    checkpoints: int
    files: int
    files_read: int
    bytes_read: int
    problems: tuple[str, ...]


def verify_pipeline(deployment: Deployment, pipeline: str, *, subset: str = "100%", seed: str = "") -> VerifiedPipeline:
    """Every completed checkpoint and savepoint: ``_metadata`` parses, each file is there with its size, and the
    checksums of a ``subset`` of the files hold: ``5%`` of them, at least one file a checkpoint, or the part ``1/20``;
    another ``seed`` chooses others. With ``100%`` every entry is read, counted and compared with the digests too.

    Raises InvalidRequestError (``bad-subset``), NotFoundError (``no-pipeline``)."""
    whole = sample(subset, seed).is_all
    name = check_pipeline(deployment, pipeline)
    seen: set[str] = set()
    files_read = bytes_read = 0
    problems: list[str] = []
    records = completed(deployment, name)
    for record in records:
        try:
            opened = open_checkpoint(record.directory, own=True, storage_root=deployment.storage_root)
        except (CorruptStateError, NotFoundError) as error:
            problems.append(f"checkpoint {name}/{record.checkpoint_id}: {error.message}")
            continue
        files = unseen(opened, seen)
        chosen = [files[uri] for uri in picked(files, subset, seed)]
        found = _whole(opened, deployment) if whole else wrong_files(opened, tuple(files.values()), chosen)
        problems += [f"checkpoint {name}/{record.checkpoint_id}: {problem}" for problem in found]
        files_read += len(chosen)
        bytes_read += sum(file.size_bytes for file in chosen)
    return VerifiedPipeline(name, len(records), len(seen), files_read, bytes_read, tuple(problems))


def _whole(opened: Checkpoint, deployment: Deployment) -> tuple[str, ...]:
    return verify(opened, scratch=deployment.scratch()).problems
