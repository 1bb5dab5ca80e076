"""Begin a savepoint: a copy of the head's state in a directory that its user chooses, and that only the user
deletes."""

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.catalog_behind import check_catalog_complete
from statelib.flows.checkpoint.steps import Begun
from statelib.flows.restore.continuation import continued_head
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.choices import NATIVE_SAVEPOINT, Strategy
from statelib.model.record import BeginRequest, CheckpointState
from statelib.model.termination import StopMode
from statelib.storage.names import SHARED_DIRECTORY, TASK_OWNED_DIRECTORY, checkpoint_number
from statelib.storage.registry import PLACES

FORMATS = ("canonical", "native")
"""The formats of a savepoint: the same for all backends, or the backend's own."""


def stop_mode(text: str | None) -> StopMode | None:
    """Return the mode of ``suspend`` or ``drain``; None for ``no``, '' and None.

    Raises InvalidRequestError (``bad-stop``)."""
    if text in (None, "", "no"):
        return None
    try:
        return StopMode(str(text).upper())
    except ValueError:
        raise InvalidRequestError(f"stop {text!r}: expected no, suspend or drain", kind="bad-stop") from None


def begin_savepoint(
    deployment: Deployment,
    pipeline: Pipeline,
    *,
    format: str,  # noqa: A002 - Flink's word for it, and the DAG's param
    target: str | None,
    note: str,
    owner: str,
    key: str,
    stop: StopMode | None = None,
) -> Begun:
    """Allocate a savepoint of the pipeline's head. A repeated request with the same ``key`` returns the same savepoint.

    ``stop``: cancel the pipeline in the same transaction, so that it begins no more checkpoints, as ``flink stop``
    does. The pipeline runs on if the savepoint fails. Raises InvalidRequestError (``bad-format``,
    ``pipeline-cancelled``, ``bad-target``), NotFoundError (``no-head``), ConflictError (``catalog-behind-storage``: the
    savepoint would have an older state than the newest one, and the id of a checkpoint on storage), and as
    :func:`~statelib.flows.restore.continuation.continued_head`.
    """
    if format not in FORMATS:
        raise InvalidRequestError(f"savepoint format {format!r}: expected one of {FORMATS}", kind="bad-format")
    if target is not None:
        _check_target(deployment.root_uri(), target)
    catalog = deployment.catalog()
    name = pipeline.name
    check_catalog_complete(deployment, name)
    head = catalog.head(name)
    if head.head is None:
        raise NotFoundError(
            f"pipeline {name} has no completed checkpoint, and so no state to save",
            kind="no-head",
            hint=f"run {name}.checkpoint first",
        )
    continued_head(deployment, pipeline, head)
    request = BeginRequest(
        pipeline=name,
        kind=SnapshotKind.SAVEPOINT,
        interval=None,
        strategy=Strategy.CANONICAL if format == "canonical" else NATIVE_SAVEPOINT,
        parallelism=head.parallelism or pipeline.parallelism,
        owner=owner,
        key=f"savepoint:{key}",
        target=target,
        note=note,
        timeout_ms=pipeline.checkpoint.timeout_s * 1000,
        stop=stop,
    )
    storage = deployment.storage(pipeline)
    record = catalog.begin(request, lambda number: storage.initialize_savepoint_location(number, target).directory)
    return Begun(record.checkpoint_id, record.state is CheckpointState.COMPLETED)


def _check_target(root: str, target: str) -> None:
    """Raise InvalidRequestError (``bad-target``) if a directory for savepoints is one in which a pipeline's checkpoints
    have their files: cleanup takes the savepoint there for a checkpoint that the catalog does not have."""
    place = PLACES.kind(target).normalised(target)
    if not PLACES.is_below(place, (root,)):
        return
    pipeline, _, below = place.removeprefix(root).strip("/").partition("/")
    directory = below.partition("/")[0]
    if directory in (SHARED_DIRECTORY, TASK_OWNED_DIRECTORY) or checkpoint_number(directory) is not None:
        raise InvalidRequestError(
            f"target {place}: a savepoint cannot lie among the files of the checkpoints of {pipeline}",
            kind="bad-target",
            hint="choose a directory of your own; without a target it is the storage's directory of savepoints",
        )
