"""A pipeline whose checkpoints refer to files of earlier ones, run with the gate, for tests of what the gate reads."""

from pathlib import Path

import pyarrow as pa

from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.gate import stored_facts
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.quality.facts import CheckpointFacts
from tests.support.worlds import day, new_deployment, publish_here

NAME = PipelineName("visits")
TURNS = 4
FILES_AND_ENTRIES, SLOWER_ENTRIES = "{rotate: 1/4}", "{rotate: 1/2, entries: 150}"
"""With the second, files have two turns and the key groups of a state with 300 to 600 entries four."""
PIPELINE = """\
name: visits
source: {path: "{data}/{start}-{end}", columns: {guest: string, stars: double}}
key: [guest]
states:
  guests: {kind: value, fields: {visits: {agg: count}, best: {agg: max, of: stars}}}
  stars: {kind: map, user_key: stars, fields: {n: {agg: count}}}
backend: %s
parallelism: 2
max_parallelism: 8
checkpoint: {strategy: %s, inline_threshold_bytes: 1}
on_gap: allow
checks: {read_back: %s}
"""
"""Two subtasks with four key groups each; with four turns, each turn reads two key groups."""


def new_world(
    root: Path, backend: str = "rocksdb", strategy: str = "incremental", read_back: str = FILES_AND_ENTRIES
) -> Deployment:
    """Return a deployment with the pipeline and no checkpoint."""
    pipelines = root / "pipelines"
    pipelines.mkdir(parents=True)
    (pipelines / "visits.yaml").write_text(PIPELINE % (backend, strategy, read_back))
    return new_deployment(root, root, pipelines)


def guests(first: int, last: int) -> pa.Table:
    """Return one event per guest."""
    numbers = range(first, last)
    return pa.table({"guest": [f"guest-{n:04d}" for n in numbers], "stars": [float(n % 7) for n in numbers]})


def taken(deployment: Deployment, number: int, events: pa.Table, name: str = NAME) -> CheckpointId:
    """Take the snapshot of a day, which is not judged yet."""
    pipeline = deployment.pipeline(name)
    checkpoint_id = begin(deployment, pipeline, day(number), "test").checkpoint_id
    publish_here(deployment, pipeline, checkpoint_id, events)
    return checkpoint_id


def facts_of(deployment: Deployment, checkpoint_id: CheckpointId, name: str = NAME) -> CheckpointFacts:
    """Return the facts that the gate collects about a snapshot that was taken."""
    catalog, pipeline = deployment.catalog(), deployment.pipeline(name)
    record = catalog.get(PipelineName(name), checkpoint_id)
    lineage = catalog.lineage(record.pipeline, record.base) if record.base is not None else []
    proved = record.base is not None and catalog.gate.has_proved(record.pipeline, record.base)
    opened = deployment.open(record)
    return stored_facts.collect_facts(
        deployment, pipeline, record, opened, lineage=lineage, base_proved=proved, trusts_job=True
    )


def run_day(deployment: Deployment, number: int, events: pa.Table, name: str = NAME) -> CheckpointFacts:
    """Take the checkpoint of a day, judge and register it, and return what the gate read."""
    checkpoint_id = taken(deployment, number, events, name)
    facts = facts_of(deployment, checkpoint_id, name)
    pipeline = deployment.pipeline(name)
    report = check(deployment, pipeline, checkpoint_id)
    register(deployment, pipeline, checkpoint_id, report.report_uri)
    return facts


def few(number: int) -> pa.Table:
    """Return the three events of a day."""
    return guests(10 * number, 10 * number + 3)


def read_files(facts: CheckpointFacts) -> set[str]:
    """Return the paths of the files that the gate read to their last byte."""
    return {finding.path for finding in facts.file_findings if finding.actual_crc is not None}


def files(facts: CheckpointFacts) -> set[str]:
    """Return the paths of all files of a snapshot."""
    return {finding.path for finding in facts.file_findings}
