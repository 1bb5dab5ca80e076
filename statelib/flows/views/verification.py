"""Verify a pipeline: its completed checkpoints are on storage, and a sample of their bytes is unchanged."""

from dataclasses import dataclass

from statelib.errors import CorruptStateError, NotFoundError
from statelib.flows.views.inspection import check_pipeline, completed
from statelib.flows.wiring import Deployment
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.sampling import picked, sample
from statelib.savepoints.verification import unseen, verify, wrong_files


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
    its size, and the checksums of a ``subset`` of the files are right. ``subset``: ``5%`` of the files, at least one
    per checkpoint, or the part ``1/20``. Another ``seed`` chooses other files. With ``100%`` every entry is also read,
    counted and compared with the digests.

    Raises InvalidRequestError (``bad-subset``), NotFoundError (``no-pipeline``)."""
    whole = sample(subset, seed).is_all
    name = check_pipeline(deployment, pipeline)
    seen: set[str] = set()
    files_read = bytes_read = 0
    problems: list[str] = []
    records = completed(deployment, name)
    for record in records:
        try:
            opened = deployment.open(record)
        except (CorruptStateError, NotFoundError) as error:
            problems.append(f"checkpoint {name}/{record.checkpoint_id}: {error.message}")
            continue
        files = unseen(opened, seen)
        chosen = [files[uri] for uri in picked(files, subset, seed)]
        wrong = _whole(opened, deployment) if whole else wrong_files(opened, tuple(files.values()), chosen)
        problems += [f"checkpoint {name}/{record.checkpoint_id}: {problem}" for problem in wrong]
        files_read += len(chosen)
        bytes_read += sum(file.size_bytes for file in chosen)
    return VerifiedPipeline(name, len(records), len(seen), files_read, bytes_read, tuple(problems))


def _whole(opened: Checkpoint, deployment: Deployment) -> tuple[str, ...]:
    return verify(opened, scratch=deployment.scratch()).problems
