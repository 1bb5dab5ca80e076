"""A pipeline whose days run through the flows, with storage that fails where the test selects it."""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from statelib.definition.pipeline import Pipeline
from statelib.errors import RetryableError
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState
from statelib.savepoints.opened import Checkpoint
from statelib.testing.faulty_streams import FaultyStreams, Hook, undisturbed
from tests.support.worlds import day, new_deployment, publish_here

TOURS = """\
name: tours
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, item: string, amount: long}}}}
key: [shop]
states:
  best: {{kind: reducing, value: {{agg: max, of: amount}}}}
  per_item: {{kind: map, user_key: item, value: {{agg: count}}}}
backend: {backend}
parallelism: 2
checkpoint:
  strategy: {strategy}
  local_recovery: {local}
  inline_threshold_bytes: 0
  retain: {{count: 3}}
"""


def events(number: int) -> pa.Table:
    """Return a day's 100 events of about 60 shops, with other amounts every day."""
    numbers = range(number * 100, number * 100 + 100)
    return pa.table(
        {
            "shop": [f"shop-{n % (50 + number % 17)}" for n in numbers],
            "item": [f"item-{n % 7}" for n in numbers],
            "amount": pa.array([n * 37 % 1009 for n in numbers], pa.int64()),
        }
    )


def expected(days: int) -> dict[str, int]:
    """Return the state ``best`` after so many days."""
    best: dict[str, int] = {}
    for row in pa.concat_tables([events(number) for number in range(1, days + 1)]).to_pylist():
        best[row["shop"]] = max(row["amount"], best.get(row["shop"], 0))
    return best


class FaultyStorage:
    """The deployment's storage: its streams call ``hook`` before each step, and publishing may fail."""

    def __init__(self, storage: Any, hook: Hook, publishing: str) -> None:
        self._storage = storage
        self._hook = hook
        self._publishing = publishing

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def resolve_checkpoint_storage_location(self, *arguments: Any) -> FaultyStreams:
        return FaultyStreams(self._storage.resolve_checkpoint_storage_location(*arguments), self._hook)

    def publish_metadata(self, *arguments: Any) -> bytes:
        """Publish the metadata. The fault ``before``: it fails; ``after``: its answer is lost."""
        if self._publishing == "before":
            raise RetryableError("publishing: the storage did not answer", kind="storage-io")
        answer: bytes = self._storage.publish_metadata(*arguments)
        if self._publishing == "after":
            raise RetryableError("publishing: the storage did not answer", kind="storage-io")
        return answer


@dataclass(frozen=True)
class FaultyDeployment(Deployment):
    """A deployment whose storage fails where ``hook`` raises an error."""

    hook: Hook = field(default=undisturbed, kw_only=True)
    publishing: str = field(default="", kw_only=True)

    @staticmethod
    def at(root: Path, hook: Hook = undisturbed, publishing: str = "") -> "FaultyDeployment":
        plain = new_deployment(root, root, root / "pipelines")
        return FaultyDeployment(**vars(plain), hook=hook, publishing=publishing)

    def storage(self, pipeline: Pipeline) -> Any:
        return FaultyStorage(super().storage(pipeline), self.hook, self.publishing)


def attempt(deployment: Deployment, number: int, before_register: Callable[[], None] = lambda: None) -> CheckpointId:
    """Take the day's run, as the DAG does."""
    pipeline = deployment.pipeline("tours")
    begun = begin(deployment, pipeline, day(number), "test")
    if begun.already_completed:
        return begun.checkpoint_id
    # The plan is None if an earlier attempt published the checkpoint.
    if plan_snapshot(deployment, pipeline, begun.checkpoint_id) is not None:
        publish_here(deployment, pipeline, begun.checkpoint_id, events(number))
    before_register()
    return register(deployment, pipeline, begun.checkpoint_id).checkpoint_id


def sweep(deployment: Deployment) -> None:
    """Do the work of ``state_cleanup``, without a grace period."""
    orphans(deployment, dry_run=False, force=True, grace_ms=0)
    retire(deployment)
    collect_garbage(deployment)


def opened_checkpoints(deployment: Deployment) -> list[Checkpoint]:
    """Return the completed checkpoints of the pipeline, opened, the oldest first."""
    records = deployment.catalog().list(PipelineName("tours"), {CheckpointState.COMPLETED})
    return [resolve(deployment, f"tours/{number}") for number in sorted(record.checkpoint_id for record in records)]


def check_nothing_else(deployment: Deployment, answer: Iterable[Checkpoint]) -> None:
    """Assert that storage contains exactly the files that these checkpoints name."""
    named: set[str] = set()
    for opened in answer:
        assert opened.manifest is not None
        directory = opened.directory.removeprefix("file://")
        named |= {os.path.join(directory, f.path.removeprefix("file://")) for f in opened.manifest.files}
        named.add(f"{directory}/_metadata")
    assert {str(path) for path in Path(deployment.storage_root).rglob("*") if path.is_file()} == named
