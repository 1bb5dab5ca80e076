"""Verify a pipeline: its completed checkpoints are on storage, and a sample of their bytes is unchanged."""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.errors import CorruptStateError, NotFoundError
from statelib.flows.views.inspection import check_pipeline, completed
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import FileRecord
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.sampling import picked, sample
from statelib.savepoints.verification.snapshots import unseen, verify, wrong_files


@dataclass(frozen=True)
class VerifiedPipeline:
    """The result of :func:`verify_pipeline`. ``files``: files that checkpoints share count once. ``problems``: empty
    if the pipeline is whole."""

    pipeline: str
    checkpoints: int
    files: int
    files_read: int
    bytes_read: int
    problems: tuple[str, ...]


def verify_pipeline(deployment: Deployment, pipeline: str, *, subset: str = "100%", seed: str = "") -> VerifiedPipeline:
    """Verify every completed checkpoint and savepoint of a pipeline: ``_metadata`` can be read, each file exists with
    its size, and the checksums of a ``subset`` of the files are right. One that is deleted meanwhile is left out.
    ``subset``: ``5%`` of the files, at least one per checkpoint, or the part ``1/20``. Another ``seed`` chooses other
    files. With ``100%`` every entry is also read, counted and compared with the digests.

    Raises InvalidRequestError (``bad-subset``), NotFoundError (``no-pipeline``)."""
    whole = sample(subset, seed).is_all
    name = check_pipeline(deployment, pipeline)
    seen: set[str] = set()
    checkpoints = files_read = bytes_read = 0
    problems: list[str] = []
    for record in completed(deployment, name):
        files: dict[str, FileRecord] = {}
        chosen: list[FileRecord] = []
        wrong: Sequence[str]
        try:
            opened = deployment.open(record)
            files = unseen(opened, seen)
            chosen = [files[uri] for uri in picked(files, subset, seed)]
            wrong = _whole(opened, deployment) if whole else wrong_files(opened, tuple(files.values()), chosen)
        except (CorruptStateError, NotFoundError) as error:
            wrong = (error.message,)
        if wrong and is_deleted(deployment, record):
            seen.difference_update(files)
            continue
        problems += [f"checkpoint {name}/{record.checkpoint_id}: {problem}" for problem in wrong]
        checkpoints += 1
        files_read += len(chosen)
        bytes_read += sum(file.size_bytes for file in chosen)
    return VerifiedPipeline(name, checkpoints, len(seen), files_read, bytes_read, tuple(problems))


def is_deleted(deployment: Deployment, record: CheckpointRecord) -> bool:
    """Return whether a checkpoint was deleted since its record was read. Then it is no damage that files of it are
    missing."""
    present = deployment.catalog().get(record.pipeline, record.checkpoint_id)
    return present.state in (CheckpointState.DELETING, CheckpointState.DELETED)


def _whole(opened: Checkpoint, deployment: Deployment) -> tuple[str, ...]:
    return verify(opened, scratch=deployment.scratch()).problems
