"""Functions that make the responses of the page's API from what the flows return."""

from dataclasses import asdict, fields, replace
from typing import Any

from statelib.catalog.views.browsing import Entry, PipelineSummary
from statelib.catalog.views.storage_use import StorageSample, Usage
from statelib.definition.pipeline import Pipeline
from statelib.flows.views.anatomy import Anatomy, Portrait, state_type
from statelib.flows.views.comparison import CheckpointComparison
from statelib.flows.views.overview import PipelineView
from statelib_airflow.addresses import run_page
from statelib_airflow.api.shapes import (
    AppliedEvents,
    CheckpointDetail,
    CheckpointRow,
    ComparisonDetail,
    DeclaredState,
    GateResult,
    PipelineRow,
    RunLink,
    StoragePoint,
    StorageRow,
    UserRights,
)

MAX_SENTENCES = 20


def pipeline_row(view: PipelineView, trigger: bool, path: str) -> PipelineRow:
    """Return a pipeline with its head. ``path``: Airflow's own path, '' or ``/airflow``."""
    return PipelineRow(
        name=view.name,
        **_definition(view.definition),
        **_summary(view.summary, path),
        error=view.error,
        may=UserRights(read=True, trigger=trigger),
    )


def _definition(file: Pipeline | None) -> dict[str, Any]:
    states = file.schema().states if file else ()
    return {
        "description": file.description if file else "",
        "schedule": file.schedule.text if file and file.schedule else None,
        "backend": file.backend if file else None,
        "strategy": file.checkpoint.strategy if file else None,
        "parallelism": file.parallelism if file else None,
        "max_parallelism": file.max_parallelism if file else None,
        "states": tuple(DeclaredState(state.name, state.kind, state_type(state)) for state in states),
        "tables": tuple(file.publish) if file else (),
    }


def _summary(summary: PipelineSummary | None, path: str) -> dict[str, Any]:
    head, pending = (summary.head, summary.pending) if summary else (None, None)
    return {
        "head": checkpoint_row(head, path) if head else None,
        "pending": checkpoint_row(pending, path) if pending else None,
        "quarantined": summary.quarantined if summary else 0,
        "failures_in_a_row": summary.failures if summary else 0,
        "cancelled": summary.cancelled if summary else False,
        "generation": summary.generation if summary else 0,
    }


def checkpoint_row(entry: Entry, path: str) -> CheckpointRow:
    """Return a checkpoint as in the list of checkpoints."""
    events, gate = entry.events, entry.gate
    stored = {name: value for name, value in vars(entry).items() if name != "begun_by"}
    computed = {
        "duration_ms": entry.duration_ms,
        "events": AppliedEvents(events.read, events.applied, events.null_key) if events else None,
        "gate": GateResult(gate.passed, gate.checked, gate.failed, gate.warned) if gate else None,
        "report": bool(entry.report),
        "run": _run_link(entry.begun_by, path),
    }
    return CheckpointRow(**{**stored, **computed})


def _run_link(begun_by: str, path: str) -> RunLink | None:
    """Return the DAG run of ``dag_id/run_id/task_id/try_number``; None for a checkpoint that a command began."""
    dag_id, _, rest = begun_by.partition("/")
    run_id, *task = rest.rsplit("/", 2)
    if len(task) != 2 or not task[1].isdecimal():
        return None
    return RunLink(dag_id, run_id, path + run_page(dag_id, run_id))


def checkpoint_detail(portrait: Portrait, path: str) -> CheckpointDetail:
    """Return a checkpoint with its details. The first sentences of each check are shown."""
    anatomy = vars(portrait.anatomy) if portrait.anatomy else dict.fromkeys(field.name for field in fields(Anatomy))
    quality = (replace(result, sentences=result.sentences[:MAX_SENTENCES]) for result in portrait.quality)
    row = vars(checkpoint_row(portrait.entry, path))
    return CheckpointDetail(
        **row, **anatomy, lineage=portrait.lineage, quality=tuple(quality), problem=portrait.problem
    )


def comparison_detail(comparison: CheckpointComparison, path: str) -> ComparisonDetail:
    """Return two checkpoints with the differences between them."""
    left, right = (checkpoint_row(entry, path) for entry in (comparison.left, comparison.right))
    return ComparisonDetail(left, right, comparison.states, comparison.files, comparison.command, comparison.problem)


def storage_row(name: str, usage: Usage) -> StorageRow:
    """Return the storage that a pipeline uses now."""
    return StorageRow(**asdict(usage), amplification=usage.amplification, name=name)


def storage_point(sample: StorageSample) -> StoragePoint:
    """Return the storage that a pipeline used at the time of a sample."""
    return StoragePoint(**asdict(sample.usage), amplification=sample.usage.amplification, at_ms=sample.at_ms)
