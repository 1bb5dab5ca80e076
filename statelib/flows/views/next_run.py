"""The reading of the next run of a pipeline: the part of the state that each subtask needs. Nothing is changed."""

from bisect import bisect_left
from dataclasses import dataclass, replace

from statelib.definition.pipeline import Pipeline
from statelib.flows.checkpoint.snapshot_plan import SnapshotPlan, plan_preview
from statelib.flows.restore.layout import RestoreLayout
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval, SnapshotKind
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.key_groups import KeyGroupRange, subtask_ranges
from statelib.restore.costs import reading_costs
from statelib.restore.live.logged import logged_database
from statelib.restore.volume import bytes_to_read

NOTHING = "nothing"
ALL = "all entries"
TOUCHED = "entries of keys"


@dataclass(frozen=True)
class SubtaskReading:
    """The reading of one subtask. ``reads``: :data:`NOTHING`, :data:`ALL` or :data:`TOUCHED`. ``fewer_keys_than``: with
    the last of them, the number of keys with events from which on everything is read; None: always single entries.
    ``size_bytes``: the stored bytes of the whole state. ``because``: the reason, '' if there is nothing to say."""

    subtask: int
    key_groups: KeyGroupRange
    reads: str
    size_bytes: int
    because: str = ""
    fewer_keys_than: int | None = None


@dataclass(frozen=True)
class NextRun:
    """The reading of all subtasks of the next run. ``base``: the checkpoint that it would continue; None if there is
    no state."""

    pipeline: PipelineName
    base: CheckpointId | None
    backend: str
    strategy: str
    subtasks: tuple[SubtaskReading, ...]


def next_run(deployment: Deployment, pipeline: Pipeline) -> NextRun:
    """Return what the subtasks of the next run read. Raises what a run raises that cannot continue from the head."""
    catalog, name = deployment.catalog(), pipeline.name
    head, strategy = catalog.head(name), pipeline.checkpoint.strategy
    base, parallelism = head.head, head.parallelism or pipeline.parallelism
    if base is None:
        ranges = subtask_ranges(parallelism, pipeline.max_parallelism)
        empty = [SubtaskReading(n, groups, NOTHING, 0, "there is no state yet") for n, groups in enumerate(ranges)]
        return NextRun(name, None, pipeline.backend, strategy, tuple(empty))
    record = replace(
        catalog.get(name, base),
        kind=SnapshotKind.CHECKPOINT,
        base=base,
        interval=DataInterval(0, 1),
        strategy=strategy,
        parallelism=parallelism,
        stop=None,
    )
    plan = plan_preview(deployment, pipeline, record)
    readings = tuple(_reading(pipeline, plan, subtask) for subtask in range(parallelism))
    return NextRun(name, base, pipeline.backend, strategy, readings)


def _reading(pipeline: Pipeline, plan: SnapshotPlan, subtask: int) -> SubtaskReading:
    layout = plan.layout
    key_groups, sources = layout.ranges[subtask], layout.sources[subtask]
    size_bytes = bytes_to_read(layout.schema, key_groups, sources, pipeline.backend)
    reading = SubtaskReading(subtask, key_groups, ALL, size_bytes)
    if not sources:
        return replace(reading, reads=NOTHING, because="its key groups have no state")
    if plan.is_blind(subtask):
        return replace(reading, reads=NOTHING, because="checkpoint.blind: it adds a delta to the change log")
    reason = plan.reasons_to_read[subtask] if plan.reasons_to_read else plan.reason_to_read_all(subtask)
    if reason:
        return replace(reading, because=reason)
    if pipeline.checkpoint.reads == "touched":
        return replace(reading, reads=TOUCHED, because="checkpoint.reads is touched")
    limit = _dear_number(layout, subtask)
    if limit <= 1:
        return replace(reading, because="single entries would not cost less than half")
    return replace(reading, reads=TOUCHED, fewer_keys_than=limit, because="they cost less than half of everything")


def _dear_number(layout: RestoreLayout, subtask: int) -> int:
    """Return the number of touched keys from which on everything is read."""
    logged = logged_database(layout.schema, layout.ranges[subtask], layout.sources[subtask])
    assert logged is not None, "single entries are read only of such a source"
    handle, states = logged.handle, len(layout.schema.states)
    return bisect_left(range(1 << 40), True, key=lambda keys: not reading_costs(handle, keys, states).favours_touched)
