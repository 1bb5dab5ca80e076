"""Find checkpoints by their ids: which there are, and which of them can be opened. Nothing here changes anything."""

from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName, pipeline_name
from statelib.model.record import CheckpointRecord, CheckpointState, why
from statelib.savepoints.opened import Checkpoint, open_checkpoint


def resolve(deployment: Deployment, text: str) -> Checkpoint:
    """A snapshot by ``<pipeline>/<id>``, or by the path of its directory or ``_metadata`` file.

    Raises as :func:`parse_checkpoint`, :func:`stored_record` and :func:`open_checkpoint` do."""
    if not is_id(text):
        return open_checkpoint(text, storage_root=deployment.storage_root)
    return open_checkpoint(stored_record(deployment, text).directory, own=True, storage_root=deployment.storage_root)


def stored_record(deployment: Deployment, text: str) -> CheckpointRecord:
    """The record of ``<pipeline>/<id>``; InvalidRequestError (``not-completed``) unless it is complete, or is kept for
    inspection."""
    record = deployment.catalog().get(*parse_checkpoint(text))
    if record.state not in (CheckpointState.COMPLETED, CheckpointState.QUARANTINED):
        reason = f": {why(record)}" if record.reason else ""
        raise InvalidRequestError(
            f"checkpoint {text} is {record.state.lower()}{reason}",
            kind="not-completed",
            hint="statelib checkpoints list shows those that are complete",
        )
    return record


def is_id(text: str) -> bool:
    """Whether the text is meant as ``<pipeline>/<id>``; what begins like a path or a URI is not."""
    return not text.startswith(("/", ".")) and ":" not in text


def parse_checkpoint(text: str) -> tuple[PipelineName, CheckpointId]:
    """``<pipeline>/<id>``; InvalidRequestError (``ambiguous-id``, ``bad-checkpoint``, ``bad-name``)."""
    pipeline, _, number = text.rpartition("/")
    if text.isdecimal():
        raise InvalidRequestError(
            f"checkpoint {text!r}: ids count per pipeline", kind="ambiguous-id", hint=f"write <pipeline>/{text}"
        )
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:20]) < 1 << 63) or not pipeline:
        raise InvalidRequestError(
            f"checkpoint {text!r}: expected <pipeline>/<id>, such as aircraft_activity/4, or an absolute path",
            kind="bad-checkpoint",
            hint="statelib checkpoints list shows the ids",
        )
    return pipeline_name(pipeline), CheckpointId(int(number))


def check_pipeline(deployment: Deployment, name: str) -> PipelineName:
    """The name, once it is sure that there are checkpoints or a file of that pipeline.

    Raises NotFoundError (``no-pipeline``)."""
    known = set(deployment.catalog().pipelines())
    if name not in known:
        known |= {PipelineName(p.name) for p in deployment.pipelines()}
    if name not in known:
        raise NotFoundError(
            f"pipeline {name!r} is neither in the catalog nor in {deployment.pipelines_directory}: "
            f"known are {', '.join(sorted(known)) or 'none'}",
            kind="no-pipeline",
        )
    return PipelineName(name)


def lineage_of_head(deployment: Deployment, pipeline: PipelineName) -> tuple[CheckpointId, ...]:
    """The checkpoints that the pipeline's present state was built through, newest first."""
    catalog = deployment.catalog()
    head = catalog.head(pipeline)
    return tuple(r.checkpoint_id for r in catalog.lineage(pipeline, head.head)) if head.head is not None else ()


def completed(deployment: Deployment, pipeline: PipelineName | None) -> list[CheckpointRecord]:
    return [r for r in deployment.catalog().list(pipeline) if r.state is CheckpointState.COMPLETED]
