"""Snapshots that nobody vouches for are judged again: the same gate, the pipeline's present file, no catalog."""

from collections.abc import Sequence
from dataclasses import dataclass

from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError, UnsupportedError
from statelib.flows.gate.judging import judge
from statelib.flows.restore.continuation import continuation
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.quality import QualityResult
from statelib.model.record import CheckpointRecord
from statelib.savepoints.opened import Checkpoint
from statelib.storage.local.scratch import scratch_directory


@dataclass(frozen=True)
class Judgement:
    """``reason``: why the snapshot is not to be built on, '' if it may be; ``results``: what the gate said, nothing if
    it could not be asked."""

    results: tuple[QualityResult, ...]
    reason: str

    @property
    def passed(self) -> bool:
        return not self.reason


def judge_again(
    deployment: Deployment, record: CheckpointRecord, opened: Checkpoint, lineage: Sequence[CheckpointRecord]
) -> Judgement:
    """What the gate says now of a snapshot that is whole. No report is kept."""
    pipeline = _present(deployment, record.pipeline)
    if pipeline is None:
        return _unjudged(f"{deployment.pipelines_directory} has no valid file of pipeline {record.pipeline}")
    try:
        if changed := _changed(pipeline, opened):
            return _unjudged(changed)
        with scratch_directory(deployment.scratch(), "gate") as scratch:
            docs = f"{scratch}/docs"
            report = judge(deployment, pipeline, record, opened, lineage=lineage, docs_directory=docs)
    except (CorruptStateError, InvalidRequestError, NotFoundError, UnsupportedError) as error:
        return _unjudged(error.message)
    return Judgement(report.results, "" if report.passed else "; ".join(report.failures))


def _unjudged(why: str) -> Judgement:
    return Judgement((), f"could not be judged: {why}")


def _present(deployment: Deployment, name: PipelineName) -> Pipeline | None:
    """The pipeline of that name, or the one that was called so."""
    pipelines = deployment.pipelines()
    own = [p for p in pipelines if p.name == name]
    return next(iter(own + [p for p in pipelines if name in p.renamed_from]), None)


def _changed(pipeline: Pipeline, opened: Checkpoint) -> str:
    """Checks name states as the file has them: they say nothing of a snapshot with others."""
    evolution = continuation(pipeline, opened).evolution
    found, wanted = ([state.name for state in schema.states] for schema in (evolution.found, evolution.wanted))
    if found == wanted and not evolution.rewrites:
        return ""
    return f"the file of pipeline {pipeline.name} has other states by now"
