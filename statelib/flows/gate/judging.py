"""The judgement of one snapshot by the quality gate and by the pipeline's own checks."""

from collections.abc import Sequence

from statelib.definition.pipeline import Pipeline
from statelib.flows.gate.check_facts import with_checks
from statelib.flows.gate.stored_facts import collect_facts
from statelib.flows.wiring import Deployment
from statelib.model.record import CheckpointRecord
from statelib.quality.gate import QualityReport, run_gate
from statelib.savepoints.opened import Checkpoint


def judge(
    deployment: Deployment,
    pipeline: Pipeline,
    record: CheckpointRecord,
    opened: Checkpoint,
    *,
    lineage: Sequence[CheckpointRecord],
    docs_directory: str,
    base_proved: bool = False,
    trusts_job: bool = False,
    source: Checkpoint | None = None,
) -> QualityReport:
    """Return the gate's report on a snapshot. Only the arguments and the storage are read, not the catalog.
    ``lineage``: the records of its base, the base's base and so on, as far as they are known. ``base_proved``: whether
    the catalog has results of the gate for the base; otherwise everything is read. ``trusts_job``: as for
    :func:`~statelib.flows.gate.stored_facts.collect_facts`. ``docs_directory``: the directory
    for the report. ``source``: as for :func:`~statelib.flows.checkpoint.steps.check`."""
    facts = collect_facts(
        deployment,
        pipeline,
        record,
        opened,
        lineage=lineage,
        base_proved=base_proved,
        trusts_job=trusts_job,
        seeded_from=source,
    )
    return run_gate(with_checks(deployment, pipeline, facts, opened, lineage, trusts_job=trusts_job), docs_directory)
