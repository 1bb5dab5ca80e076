"""The gate reads a part of a corrected checkpoint, too, and compares the rest with its base."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from statelib.errors import ConflictError
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.mending.steps import begin_mend, plan_mend
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId
from statelib.model.moments import moment_of
from statelib.quality.facts import CheckpointFacts
from statelib.quality.gate import run_gate
from tests.integration.gate_rotation import NAME, facts_of, few, guests, new_world, run_day
from tests.support.worlds import day, publish_here

STRATEGIES = [("rocksdb", "incremental"), ("rocksdb", "changelog"), ("heap", "changelog")]


@pytest.fixture(params=STRATEGIES, ids="-".join)
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    """Return a deployment with three days of guests, of which each can be corrected."""
    world = new_world(tmp_path, *request.param)
    file = Path(world.pipelines_directory) / "visits.yaml"
    file.write_text(file.read_text().replace("checkpoint: {", "checkpoint: {mendable: 30d, "))
    for number, events in ((1, guests(0, 200)), (2, few(2)), (3, few(3))):
        run_day(world, number, events)
    return world


def corrected(deployment: Deployment, number: int, events: pa.Table) -> tuple[CheckpointId, CheckpointFacts]:
    """Take the checkpoint that corrects a day, and return its id and what the gate reads of it."""
    pipeline = deployment.pipeline(NAME)
    begun = begin_mend(deployment, pipeline, plan_mend(deployment, pipeline, day(number)), "test").checkpoint_id
    publish_here(deployment, pipeline, begun, events)
    return begun, facts_of(deployment, begun)


def test_a_correction_that_leaves_key_groups_empty_passes(deployment: Deployment) -> None:
    for number, events in ((1, guests(0, 1)), (2, few(2)[:0])):
        begun, facts = corrected(deployment, number, events)
        assert facts.partial is not None
        report = check(deployment, deployment.pipeline(NAME), begun)
        register(deployment, deployment.pipeline(NAME), begun, report.report_uri)
    assert facts.manifest is not None
    assert sum(facts.manifest.statistics[0].entries) == len({0, 30, 31, 32}), "guests that are left"


def test_a_correction_is_refused_while_a_run_is_under_way_but_not_after_its_deadline(deployment: Deployment) -> None:
    pipeline = deployment.pipeline(NAME)
    pending = begin(deployment, pipeline, day(4), "a run that is killed").checkpoint_id
    with pytest.raises(ConflictError) as caught:
        plan_mend(deployment, pipeline, day(2))
    deadline_ms = deployment.catalog().get(NAME, pending).deadline_ms
    assert deadline_ms is not None
    assert caught.value.kind == "checkpoint-pending"
    assert moment_of(deadline_ms).isoformat() in caught.value.hint
    with pytest.raises(ConflictError):
        plan_mend(deployment, pipeline, day(2), clock=lambda: deadline_ms)
    assert plan_mend(deployment, pipeline, day(2), clock=lambda: deadline_ms + 1).start_ms == day(2).start_ms


def test_key_groups_without_new_entries_are_compared_with_the_base(deployment: Deployment, tmp_path: Path) -> None:
    _, facts = corrected(deployment, 3, few(3)[:1])
    assert run_gate(facts, str(tmp_path / "docs")).failures == ()
    assert facts.partial is not None
    untouched = set(range(8)) - facts.partial.written - facts.partial.key_groups
    assert facts.base_statistics is not None
    first, *others = facts.base_statistics
    digests = first.digests.copy()
    digests[min(untouched)] += np.uint64(1)
    changed = replace(facts, base_statistics=(replace(first, digests=digests), *others))
    assert "although no new file has entries of it" in str(run_gate(changed, str(tmp_path / "docs")).failures)
