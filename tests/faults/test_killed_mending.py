"""A correction that is killed at each of its crash points: the head is the state before or after it, a repeated
correction gives the state of a replay, and cleanup leaves what is needed and nothing else."""

import shutil
from pathlib import Path

import pytest

from statelib.flows.checkpoint.steps import register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.mending.steps import begin_mend, plan_mend
from statelib.flows.wiring import Deployment
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.testing.crash_points import Place, ends_at, kill, recorded
from tests.faults.crash_child import run
from tests.faults.crash_world import NAME, content, events, holdings
from tests.support.extent import large, rounds
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

PIPELINE = """\
name: shops
source: {path: "{data}/{start}-{end}", columns: {shop: string, amount: long}}
key: [shop]
states:
  total: {kind: value, value: {agg: sum, of: amount}}
backend: BACKEND
parallelism: 2
max_parallelism: 8
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0, retain: {count: 2}, mendable: 9dREADS}
"""
WRONG = 7
"""The day whose events were applied as those of day 2."""


def mend(deployment: Deployment) -> None:
    """Correct day 2 with the steps of the DAG. A killed try is superseded."""
    pipeline = deployment.pipeline(NAME)
    begun = begin_mend(deployment, pipeline, plan_mend(deployment, pipeline, day(2)), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events(2))
    register(deployment, pipeline, begun.checkpoint_id)


def mend_killed(deployment: Deployment, place: Place) -> None:
    with ends_at(place, kill):
        mend(deployment)


def opened_head(deployment: Deployment) -> Checkpoint:
    catalog = deployment.catalog()
    head = catalog.head(NAME).head
    assert head is not None
    return deployment.open(catalog.get(NAME, head))


def totals(deployment: Deployment) -> dict[str, int]:
    """Return the state of the head, all of whose files are proved."""
    opened = opened_head(deployment)
    assert not verify(opened, scratch=deployment.work_directory).problems
    return content(deployment, opened)


def of_days(*numbers: int) -> dict[str, int]:
    """Return the state after these days."""
    rows = [row for number in numbers for row in events(number).to_pylist()]
    return {shop: sum(r["amount"] for r in rows if r["shop"] == shop) for shop in {r["shop"] for r in rows}}


LARGE = large("make test kills the one that reads touched entries")


@pytest.mark.parametrize(
    "storing",
    [
        pytest.param(("heap", "changelog", ""), id="heap", marks=LARGE),
        pytest.param(("rocksdb", "incremental", ""), id="rocksdb", marks=LARGE),
        pytest.param(("rocksdb", "changelog", ", reads: touched"), id="rocksdb that reads touched entries"),
    ],
)
def test_a_killed_correction_loses_nothing_and_can_be_repeated(storing: tuple[str, str, str], tmp_path: Path) -> None:
    root, saved = tmp_path / "world", tmp_path / "saved"
    (root / "pipelines").mkdir(parents=True)
    backend, strategy, reads = storing
    text = PIPELINE.replace("BACKEND", backend).replace("STRATEGY", strategy).replace("READS", reads)
    (root / "pipelines" / "shops.yaml").write_text(text)
    deployment = new_deployment(root, root, root / "pipelines")
    for number, applied in enumerate((1, WRONG, 3, 4), start=1):
        checkpoint_of(deployment, NAME, number, events(applied))
    shutil.copytree(root, saved)
    with recorded() as reached:
        mend(deployment)
    manifest = opened_head(deployment).manifest
    assert manifest is not None
    assert ("touched" in manifest.restored_from) == bool(reads)
    assert totals(deployment) == of_days(1, 2, 3, 4)
    assert {"subtask: side data written", "commit: committed"} <= {place.point for place in reached}
    for place in reached[:: rounds(6, 1)]:
        shutil.rmtree(root)
        shutil.copytree(saved, root)
        assert run(mend_killed, deployment, place) == -9, place
        assert totals(deployment) in (of_days(1, WRONG, 3, 4), of_days(1, 2, 3, 4)), place
        mend(deployment)
        assert totals(deployment) == of_days(1, 2, 3, 4), place
        checkpoint_of(deployment, NAME, 5, events(5))
        assert totals(deployment) == of_days(1, 2, 3, 4, 5), place
        for _ in range(3):
            retire(deployment)
            collect_garbage(deployment)
            orphans(deployment, dry_run=False, force=True, grace_ms=0)
        held = holdings(deployment)
        assert held.there == held.needed, place
