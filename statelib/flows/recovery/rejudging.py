"""Judge a snapshot again that no later checkpoint proves: by the same gate and the present pipeline file, without the
catalog."""

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
    """The judgement of a snapshot. ``reason``: why no checkpoint may continue from it, '' if one may. ``results``: the
    gate's results, empty if the gate could not run."""

    results: tuple[QualityResult, ...]
    reason: str

    @property
    def passed(self) -> bool:
        return not self.reason


def judge_again(
    deployment: Deployment, record: CheckpointRecord, opened: Checkpoint, lineage: Sequence[CheckpointRecord]
) -> Judgement:
    """Return the gate's present judgement of a whole snapshot. No report is kept."""
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
    """Return the pipeline of this name, or the one that had this name before; None if there is neither."""
    pipelines = deployment.pipelines()
    own = [p for p in pipelines if p.name == name]
    return next(iter(own + [p for p in pipelines if name in p.renamed_from]), None)


def _changed(pipeline: Pipeline, opened: Checkpoint) -> str:
    """Return how the pipeline file differs from the snapshot's states, '' if it does not. The checks of the file refer
    to its own states and cannot judge a snapshot with others."""
    evolution = continuation(pipeline, opened).evolution
    stored, wanted = ([state.name for state in schema.states] for schema in (evolution.found, evolution.wanted))
    if stored == wanted and not evolution.rewrites:
        return ""
    return f"the file of pipeline {pipeline.name} has other states now"
