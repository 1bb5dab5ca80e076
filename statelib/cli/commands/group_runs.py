"""``statelib run --group``: the runs of all pipelines of a group, whose snapshots are taken together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from statelib.cli.presenters.blocks import Block, Line, Note
from statelib.cli.presenters.console import ProgressBar
from statelib.cli.presenters.values import minute, when
from statelib.cli.spark_session import require_for_runs, session
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.intervals import moment
from statelib.errors import NotFoundError, StatelibError
from statelib.flows import wiring
from statelib.flows.checkpoint.next_intervals import check_over, next_intervals
from statelib.flows.wiring import Deployment
from statelib.model.amounts import amount
from statelib.model.checkpoint import DataInterval
from statelib.model.record import CheckpointRecord


@dataclass
class GroupRun:
    """The runs of a group. ``intervals``: those of each pipeline, in order; ``results``: each checkpoint, and whether
    it was completed before; ``errors``: by the name of the pipeline."""

    group: str
    intervals: Mapping[Pipeline, Sequence[DataInterval]]
    results: list[tuple[CheckpointRecord, bool]] = field(default_factory=list)
    errors: dict[str, Exception] = field(default_factory=dict)

    def document(self, dry_run: bool) -> dict[str, object]:
        """Return the JSON document of the command."""
        return {
            "pipeline": None,
            "group": self.group,
            "dry_run": dry_run,
            "intervals": [
                {"pipeline": p.name} | asdict(interval) for p, each in self.intervals.items() for interval in each
            ],
            "checkpoints": [asdict(record) | {"already_completed": existed} for record, existed in self.results],
            "errors": {name: _described(error) for name, error in self.errors.items()},
        }

    def plan(self) -> Iterator[Block]:
        """Yield the view of a dry run."""
        for pipeline, each in self.intervals.items():
            for interval in each:
                yield Line(f"{pipeline.name}: {when(interval.start_ms)} to {when(interval.end_ms)} UTC")
        number = sum(map(len, self.intervals.values()))
        yield Note(f"dry run: {amount(number, 'interval')} would be applied")

    def failures(self) -> Iterator[Block]:
        """Yield a line for each pipeline that failed."""
        for name, error in self.errors.items():
            yield Line(f"{name} failed: {error}")


def planned_group(
    deployment: Deployment, group: str, bounds: tuple[str | None, str | None], *, whole: bool
) -> GroupRun:
    """Return the intervals that the pipelines of a group would apply. ``bounds``: as the user wrote them.

    Raises NotFoundError (``no-group``), and as :func:`next_intervals`."""
    pipelines = [pipeline for pipeline in deployment.pipelines() if pipeline.group == group]
    if not pipelines:
        names = sorted({pipeline.group for pipeline in deployment.pipelines()} - {""})
        raise NotFoundError(
            f"no pipeline file has group: {group}; known are {', '.join(names) or 'none'}",
            kind="no-group",
            hint="write 'group' into the file of each pipeline of the group",
        )
    with wiring.planning_deployment() as planner:
        intervals = {}
        for pipeline in pipelines:
            start, end = (None if text is None else moment(text, pipeline.zone) for text in bounds)
            intervals[pipeline] = next_intervals(planner, pipeline, start, end, whole=whole)
    return GroupRun(group, intervals)


def execute_group(
    deployment: Deployment, run: GroupRun, spark: tuple[str, list[str] | None], *, owner: str, assume_ready: bool
) -> None:
    """Apply the intervals, the first of each pipeline together, then the second, and so on. A pipeline that fails gets
    no later interval. ``spark``: the master and the settings of the session.

    Raises RetryableError (``interval-not-over``)."""
    for pipeline, each in run.intervals.items():
        check_over(pipeline, each, assume_ready=assume_ready)
    require_for_runs(run.intervals)
    rounds = max(map(len, run.intervals.values()))
    with session(f"{run.group} run", *spark) as running, ProgressBar(rounds) as progress:
        from statelib.spark.snapshot.group_run import run_group_interval  # other commands start without Spark

        for number in range(rounds):
            ready = {
                pipeline: each[number]
                for pipeline, each in run.intervals.items()
                if number < len(each) and pipeline.name not in run.errors
            }
            if not ready:
                return
            step = progress.next_piece(f"{run.group} {minute(next(iter(ready.values())).start_ms)}")
            result = run_group_interval(running, deployment, ready, owner=owner, step=step, assume_ready=assume_ready)
            run.results += result.completed.values()
            run.errors |= result.errors


def _described(error: Exception) -> dict[str, str]:
    if isinstance(error, StatelibError):
        return {"error": error.kind, "message": error.message, "hint": error.hint}
    return {"error": type(error).__name__, "message": str(error), "hint": ""}
