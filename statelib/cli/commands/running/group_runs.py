"""``statelib run --group``: the runs of all pipelines of a group, whose snapshots are taken together."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from statelib.cli.presenters.blocks import Block, Line, Note
from statelib.cli.presenters.console import ProgressBar
from statelib.cli.presenters.values import minute, when
from statelib.cli.spark_session import require_for_runs, session
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.definition.source.intervals import moment
from statelib.errors import NotFoundError, StatelibError
from statelib.flows import wiring
from statelib.flows.checkpoint.next_intervals import check_over, is_over, next_intervals
from statelib.flows.publication.steps import publish_tables
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
    deployment: Deployment, group: str, bounds: tuple[str | None, str | None], *, whole: bool, assume_ready: bool
) -> GroupRun:
    """Return the intervals that the pipelines of a group would apply. ``bounds``: as the user wrote them. Without an
    end, a pipeline whose next interval is not over waits, if that of another one is.

    Raises NotFoundError (``no-group``), and as :func:`next_intervals` if no pipeline has a plan."""
    loaded, faults = load_pipelines(deployment.pipelines_directory)
    pipelines = [pipeline for pipeline in loaded if pipeline.group == group]
    if not pipelines:
        names = sorted({pipeline.group for pipeline in loaded} - {""})
        raise NotFoundError(
            f"no pipeline file has group: {group}; known are {', '.join(names) or 'none'}",
            kind="no-group",
            hint="write 'group' into the file of each pipeline of the group",
        )
    intervals: dict[Pipeline, list[DataInterval]] = {}
    copies = {fault.pipeline: fault for fault in faults}
    errors: dict[str, Exception] = {}
    with wiring.planning_deployment() as planner:
        for pipeline in pipelines:
            try:
                if pipeline.name in copies:
                    raise copies[pipeline.name].error()
                start, end = (None if text is None else moment(text, pipeline.zone) for text in bounds)
                intervals[pipeline] = next_intervals(planner, pipeline, start, end, whole=whole)
            except StatelibError as error:
                errors[pipeline.name] = error
    if not intervals:
        raise next(iter(errors.values()))
    over = {p for p, each in intervals.items() if assume_ready or is_over(p, each)}
    if over and bounds[1] is None:
        intervals |= {pipeline: [] for pipeline in intervals if pipeline not in over}
    return GroupRun(group, intervals, errors=errors)


def execute_group(
    deployment: Deployment, run: GroupRun, spark: tuple[str, list[str] | None], *, owner: str, assume_ready: bool
) -> None:
    """Apply the intervals, the first of each pipeline together, then the second, and so on. A pipeline that fails gets
    no later interval; one without intervals publishes what is not published yet. ``spark``: the master and the settings
    of the session.

    Raises RetryableError (``interval-not-over``)."""
    for pipeline, each in run.intervals.items():
        check_over(pipeline, each, assume_ready=assume_ready)
    _publish_the_rest(deployment, run)
    rounds = max(map(len, run.intervals.values()))
    if not rounds:
        return
    require_for_runs(run.intervals)
    with session(f"{run.group} run", *spark) as running, ProgressBar(rounds) as progress:
        from statelib.spark.snapshot.runs.group_run import run_group_interval  # other commands start without Spark

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


def _publish_the_rest(deployment: Deployment, run: GroupRun) -> None:
    for pipeline, each in run.intervals.items():
        if not each and pipeline.name not in run.errors:
            try:
                publish_tables(deployment, pipeline)
            except StatelibError as error:
                run.errors[pipeline.name] = error


def _described(error: Exception) -> dict[str, str]:
    if isinstance(error, StatelibError):
        return {"error": error.kind, "message": error.message, "hint": error.hint}
    return {"error": type(error).__name__, "message": str(error), "hint": ""}
