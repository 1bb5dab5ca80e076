"""A pipeline of tours with a state of every kind, run through the flows in this process and compared with plain
dictionaries: what the matrices of backends, strategies and parallelisms are made of."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from tests.support.worlds import day, new_deployment, publish_here

TOURS = """\
name: {name}
renamed_from: {renamed_from}
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, item: string, amount: long}}}}
key: [shop]
states:
  best: {{kind: reducing, value: {{agg: max, of: amount}}}}
  total: {{kind: aggregating, fields: {{sold: {{agg: count}}, sum: {{agg: sum, of: amount}}}}}}
  latest: {{kind: value, fields: {{amount: {{agg: max, of: amount}}}}}}
  per_item: {{kind: map, user_key: item, value: {{agg: count}}}}
  amounts: {{kind: list, value: {{agg: collect, of: amount}}}}
backend: {backend}
parallelism: {parallelism}
max_parallelism: {max_parallelism}
on_gap: fail
checkpoint:
  strategy: {strategy}
  local_recovery: {local_recovery}
  inline_threshold_bytes: {inline_threshold_bytes}
  file_merging: {{enabled: {file_merging}}}
  retain: {{count: {keep}}}
"""

States = dict[str, dict[object, object]]


@dataclass(frozen=True)
class Way:
    """The settings of a pipeline that decide how its state is stored."""

    backend: str = "rocksdb"
    strategy: str = "incremental"
    local_recovery: bool = False
    file_merging: bool = False
    parallelism: int = 2
    max_parallelism: int = 128
    inline_threshold_bytes: int = 0
    keep: int = 20
    renamed_from: tuple[str, ...] = ()


def events(number: int) -> pa.Table:
    """Return a day's 200 events of some 90 shops, every day of a few more shops."""
    numbers = range(number * 200, number * 200 + 200)
    return pa.table(
        {
            "shop": [f"shop-{n % (90 + number)}" for n in numbers],
            "item": [f"item-{n % 7}" for n in numbers],
            "amount": pa.array([n * 37 % 1009 for n in numbers], pa.int64()),
        }
    )


def expected(days: int) -> States:
    """Return all states after so many days."""
    amounts: dict[str, list[int]] = {}
    per_item: dict[tuple[str, str], int] = {}
    for row in pa.concat_tables([events(number) for number in range(1, days + 1)]).to_pylist():
        shop, item = row["shop"], row["item"]
        amounts.setdefault(shop, []).append(row["amount"])
        per_item[shop, item] = per_item.get((shop, item), 0) + 1
    return {
        "best": {shop: max(states) for shop, states in amounts.items()},
        "total": {shop: {"sold": len(states), "sum": sum(states)} for shop, states in amounts.items()},
        "latest": {shop: {"amount": max(states)} for shop, states in amounts.items()},
        "per_item": dict(per_item),
        "amounts": {shop: sorted(states) for shop, states in amounts.items()},
    }


class Tours:
    """A deployment below ``root`` with any number of pipelines of this kind."""

    def __init__(self, root: Path, catalog_url: str | None = None, storage_root: str | None = None) -> None:
        (root / "pipelines").mkdir(parents=True)
        deployment = new_deployment(root, root, root / "pipelines")
        self.deployment: Deployment = dataclasses.replace(
            deployment,
            catalog_url=catalog_url or deployment.catalog_url,
            storage_root=storage_root or deployment.storage_root,
        )

    def use(self, way: Way, name: str = "tours") -> None:
        """Write the pipeline's file."""
        settings = dataclasses.asdict(way) | {
            "local_recovery": str(way.local_recovery).lower(),
            "file_merging": str(way.file_merging).lower(),
            "renamed_from": list(way.renamed_from),
        }
        (Path(self.deployment.pipelines_directory) / f"{name}.yaml").write_text(TOURS.format(name=name, **settings))

    def run(self, number: int, name: str = "tours") -> CheckpointManifest:
        """Apply a day: begin, plan, each subtask's snapshot, publish, a check that it is complete and right,
        register."""
        pipeline = self.deployment.pipeline(name)
        checkpoint_id = begin(self.deployment, pipeline, day(number), "test").checkpoint_id
        publish_here(self.deployment, pipeline, checkpoint_id, events(number))
        directory = self.deployment.catalog().get(PipelineName(name), checkpoint_id).directory
        self.check(open_checkpoint(directory, own=True, storage_root=self.deployment.storage_root), number)
        register(self.deployment, pipeline, checkpoint_id)
        manifest = self.opened(checkpoint_id, name).manifest
        assert manifest is not None
        return manifest

    def check(self, opened: Checkpoint, days: int) -> None:
        """Assert that the checkpoint is complete, and its state is that of so many days."""
        assert verify(opened, scratch=self.deployment.work_directory).problems == ()
        assert self.states(opened) == expected(days)

    def states(self, opened: Checkpoint) -> States:
        """Return the stored states in the form of :func:`expected`. No key may appear twice."""
        states_read: States = {descriptor.name: {} for descriptor in opened.schema().states}
        for state, table in opened.tables(scratch=self.deployment.work_directory):
            for row in table.to_pylist():
                key = _key(row)
                assert key not in states_read[state], f"{state}: {key} comes twice"
                states_read[state][key] = _value(row["value"])
        return states_read

    def opened(self, checkpoint_id: int, name: str = "tours") -> Checkpoint:
        return resolve(self.deployment, f"{name}/{checkpoint_id}")

    def restore(
        self,
        checkpoint: object,
        claim: ClaimMode = ClaimMode.NO_CLAIM,
        *,
        parallelism: int | None = None,
        name: str = "tours",
    ) -> None:
        """Restore a checkpoint by its id, or by the path of its directory."""
        pipeline = self.deployment.pipeline(name)
        plan = plan_restore(self.deployment, pipeline, str(checkpoint), parallelism, claim)
        apply_restore(self.deployment, pipeline, plan, "test")


def _key(row: dict[str, object]) -> object:
    return (row["key"], row["user_key"]) if "user_key" in row else row["key"]


def _value(value: object) -> object:
    return sorted(value) if isinstance(value, list) else value
