"""A pipeline's subtasks one after the other in this process: what remains of a run when Spark is taken away."""

import pyarrow as pa

from statelib.definition.columns import event_schema, key_array
from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan, plan_snapshot
from statelib.flows.checkpoint.steps import Begun, begin, check, register
from statelib.flows.mending.steps import begin_mend, plan_mend
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SubtaskReport
from statelib.model.key_groups import subtask_of
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.serializers.entries.keys import key_groups
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from tests.benchmarks.events import interval


class Subtasks:
    """The subtasks of a pipeline, with ``prepare(n, events)``, ``apply()`` and ``finish()``: only the middle one is
    measured."""

    def __init__(self, deployment: Deployment, pipeline: Pipeline) -> None:
        self.deployment, self.pipeline = deployment, pipeline
        self._plan: SnapshotPlan | None = None
        self._parts: list[pa.Table] = []
        self._events = 0
        self._task = 0
        self.reports: list[SubtaskReport] = []

    def prepare(self, number: int, events: pa.Table) -> None:
        self._prepare(begin(self.deployment, self.pipeline, interval(number), "bench"), events)

    def prepare_mend(self, number: int, events: pa.Table) -> None:
        """Prepare the correction of an interval that the state has."""
        plan = plan_mend(self.deployment, self.pipeline, interval(number))
        self._prepare(begin_mend(self.deployment, self.pipeline, plan, "bench"), events)

    def _prepare(self, begun: Begun, events: pa.Table) -> None:
        self._plan = plan_snapshot(self.deployment, self.pipeline, begun.checkpoint_id)
        table, schema = events.cast(event_schema(self.pipeline)), self.pipeline.schema()
        groups = key_groups(schema, key_array(self.pipeline, table))
        owners = subtask_of(groups, self.pipeline.parallelism, schema.max_parallelism)
        parts = [table.filter(pa.array(owners == subtask)) for subtask in range(self.pipeline.parallelism)]
        self._parts, self._events = [part.combine_chunks() for part in parts], len(table)

    def apply(self) -> list[SubtaskReport]:
        assert self._plan is not None
        work = Work(self.deployment.for_workers(), self.pipeline, self._plan)
        self.reports = []
        for subtask, part in enumerate(self._parts):
            self._task += 1
            self.reports.append(snapshot_subtask(work, subtask, self._task, part))
        return self.reports

    def finish(self, *, judged: bool = False) -> Checkpoint:
        """Publish and register the checkpoint. ``judged``: whether the gate checks it first."""
        assert self._plan is not None
        publish(self.deployment, self.pipeline, self._plan, self._events, self.reports)
        record = self._plan.record
        if judged:
            check(self.deployment, self.pipeline, record.checkpoint_id)
        register(self.deployment, self.pipeline, record.checkpoint_id)
        return open_checkpoint(record.directory, storage_root=self.deployment.storage_root)
