"""Find and open checkpoints by their ids, names and moments."""

import re
from collections.abc import Iterator, Sequence
from datetime import UTC

from statelib.definition.source.intervals import moment
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.lifecycle.renaming import former_head
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId, PipelineName, pipeline_name
from statelib.model.record import CheckpointRecord, CheckpointState, why
from statelib.savepoints.opened import Checkpoint

HEAD, LATEST = "head", "latest"
"""Names of a pipeline's checkpoints, instead of an id."""
_AS_OF = re.compile(r"([^/@:]+)@(\d{4}-.*)")
"""A pipeline and a moment, as in ``sales@2026-01-05``."""


def resolve(deployment: Deployment, text: str) -> Checkpoint:
    """Open a snapshot by the path of its directory or ``_metadata`` file, or by a name as in :func:`named_checkpoint`.

    Raises as :func:`stored_record` and :meth:`Deployment.open`."""
    if not is_id(text):
        return deployment.open_at(text)
    return deployment.open(stored_record(deployment, text))


def stored_record(deployment: Deployment, text: str) -> CheckpointRecord:
    """Return the record that a text names as in :func:`named_checkpoint`. Raises InvalidRequestError
    (``not-completed``) unless it is COMPLETED or QUARANTINED."""
    record = deployment.catalog().get(*named_checkpoint(deployment, text))
    if record.state not in (CheckpointState.COMPLETED, CheckpointState.QUARANTINED):
        reason = f": {why(record)}" if record.reason else ""
        raise InvalidRequestError(
            f"checkpoint {text} is {record.state.lower()}{reason}",
            kind="not-completed",
            hint="statelib checkpoints list shows those that are complete",
        )
    return record


def is_id(text: str) -> bool:
    """Return whether the text names a checkpoint as in :func:`named_checkpoint`, and is not a path or a URI."""
    return _AS_OF.fullmatch(text) is not None or (not text.startswith(("/", ".")) and ":" not in text)


def named_checkpoint(deployment: Deployment, text: str) -> tuple[PipelineName, CheckpointId]:
    """Return (pipeline, id) of a ``<pipeline>/<id>``, of ``<pipeline>`` or ``<pipeline>/head``, the checkpoint on which
    the next run builds, of ``<pipeline>/latest``, the newest completed checkpoint or savepoint, or of
    ``<pipeline>@<moment>``, the checkpoint in the head's history with the events of all intervals that had ended at
    that moment.

    Raises as :func:`parse_checkpoint` and :func:`check_pipeline`, InvalidRequestError (``bad-time``), and NotFoundError
    (``no-checkpoint``) if the pipeline has no head, nothing that is completed, or nothing of that time."""
    as_of = _AS_OF.fullmatch(text)
    if as_of:
        return _as_of(deployment, as_of[1], as_of[2])
    if "@" in text and "/" not in text:
        pipeline, _, time = text.partition("@")
        raise InvalidRequestError(
            f"{text}: expected a moment such as {pipeline}@2026-03-31 or {pipeline}@2026-03-31T06:00, found {time!r}",
            kind="bad-time",
        )
    name, _, word = text.rpartition("/")
    if text and "/" not in text and not text.isdecimal():
        name, word = text, HEAD
    if word not in (HEAD, LATEST) or not name:
        return parse_checkpoint(text, " or sales/head, or a path")
    catalog = deployment.existing_catalog()
    pipeline = check_pipeline(deployment, name)
    if word == HEAD:
        number = catalog.head(pipeline).head
    else:
        number = max((record.checkpoint_id for record in completed(deployment, pipeline)), default=None)
    if number is None:
        raise NotFoundError(
            f"{text}: pipeline {pipeline} has no {'head' if word == HEAD else 'completed checkpoint'}",
            kind="no-checkpoint",
            hint=f"statelib checkpoints list -p {pipeline} --all shows what it has"
            f"{_former_name(deployment, pipeline, word)}",
        )
    return pipeline, number


def _former_name(deployment: Deployment, pipeline: PipelineName, word: str) -> str:
    """Return the end of a hint: how the state of a renamed pipeline is named before its first run. '' if its first run
    takes over no state."""
    file = next((file for file in deployment.pipelines() if file.name == pipeline), None)
    former = former_head(deployment, file) if file else None
    return f"; until its first run, its state is {former.pipeline}/{word}" if former else ""


def _as_of(deployment: Deployment, name: str, text: str) -> tuple[PipelineName, CheckpointId]:
    """Return the newest checkpoint in the head's history whose interval ends at the moment or before it, also one that
    is deleted: an older one does not have the events of that time."""
    pipeline = check_pipeline(deployment, name)
    zone = next((file.zone for file in deployment.pipelines() if file.name == name), UTC)
    end_ms = moment(text, zone)
    catalog = deployment.existing_catalog()
    head = catalog.head(pipeline).head
    history = [] if head is None else catalog.lineage(pipeline, head)
    ended = [record for record, interval in _with_positions(history) if interval.end_ms <= end_ms]
    if not ended:
        raise NotFoundError(
            f"{name}@{text}: no interval in the history of pipeline {pipeline} had ended at that moment",
            kind="no-checkpoint",
            hint=f"statelib checkpoints list -p {pipeline} shows the intervals",
        )
    newest = max(ended, key=lambda record: record.checkpoint_id)
    return pipeline, newest.checkpoint_id


def _with_positions(history: Sequence[CheckpointRecord]) -> Iterator[tuple[CheckpointRecord, DataInterval]]:
    """Yield each record with the last interval that its state has, oldest first. A checkpoint that mends an earlier
    interval has that of its base. ``history``: the newest first."""
    last = None
    for record in reversed(history):
        last = record.interval or last
        if last is not None and (record.interval is not None or record.mends is not None):
            yield record, last


def parse_checkpoint(text: str, others: str = "") -> tuple[PipelineName, CheckpointId]:
    """Return (pipeline, id) of a ``<pipeline>/<id>``. ``others``: the other names that the caller takes, for the error.
    Raises InvalidRequestError (``ambiguous-id``, ``bad-checkpoint``, ``bad-name``)."""
    pipeline, _, number = text.rpartition("/")
    if text.isdecimal():
        raise InvalidRequestError(
            f"checkpoint {text!r}: ids count per pipeline", kind="ambiguous-id", hint=f"write <pipeline>/{text}"
        )
    if not (number.isascii() and number.isdecimal() and 0 < int(number[:20]) < 1 << 63) or not pipeline:
        raise InvalidRequestError(
            f"checkpoint {text!r}: expected <pipeline>/<id>, such as sales/4{others}",
            kind="bad-checkpoint",
            hint="statelib checkpoints list shows the ids",
        )
    return pipeline_name(pipeline), CheckpointId(int(number))


def check_pipeline(deployment: Deployment, name: str) -> PipelineName:
    """Return the name of a pipeline that has a row in the catalog or a pipeline file. Raises NotFoundError
    (``no-pipeline``) if it has neither."""
    names = set(deployment.catalog().pipelines())
    if name not in names:
        names |= {p.name for p in deployment.pipelines()}
    if name not in names:
        raise NotFoundError(
            f"pipeline {name!r} is neither in the catalog nor in {deployment.pipelines_directory}: "
            f"known are {', '.join(sorted(names)) or 'none'}",
            kind="no-pipeline",
        )
    return PipelineName(name)


def lineage_of_head(deployment: Deployment, pipeline: PipelineName) -> tuple[CheckpointId, ...]:
    """Return the ids of the pipeline's head, its base, the base's base and so on."""
    catalog = deployment.catalog()
    head = catalog.head(pipeline)
    return tuple(r.checkpoint_id for r in catalog.lineage(pipeline, head.head)) if head.head is not None else ()


def completed(deployment: Deployment, pipeline: PipelineName | None) -> list[CheckpointRecord]:
    """Return the completed checkpoints and savepoints of a pipeline, or of all."""
    return [r for r in deployment.catalog().list(pipeline) if r.state is CheckpointState.COMPLETED]
