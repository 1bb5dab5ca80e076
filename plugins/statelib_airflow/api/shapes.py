"""The JSON objects of the page's API, made of what the flows return."""

from dataclasses import asdict
from typing import Any

from statelib.catalog.views.browsing import Entry, PipelineSummary
from statelib.catalog.views.storage_use import Usage
from statelib.definition.pipeline import Pipeline
from statelib.flows.views.anatomy import Portrait, state_type
from statelib.flows.views.comparison import CheckpointComparison
from statelib.flows.views.overview import PipelineView
from statelib_airflow.addresses import run_page

Json = dict[str, Any]
_ANATOMY = ("max_parallelism", "states", "states_total", "subtasks", "files", "files_total", "operator_state")
MAX_SENTENCES = 20


def pipeline_json(view: PipelineView, trigger: bool, path: str) -> Json:
    """Return a pipeline with its head. ``path``: Airflow's own path, '' or ``/airflow``."""
    return {
        "name": view.name,
        **_definition(view.definition),
        **_summary(view.summary, path),
        "error": view.error,
        "may": {"read": True, "trigger": trigger},
    }


def _definition(file: Pipeline | None) -> Json:
    return {
        "description": file.description if file else "",
        "schedule": file.schedule.cron if file and file.schedule else None,
        "backend": file.backend if file else None,
        "strategy": file.checkpoint.strategy if file else None,
        "parallelism": file.parallelism if file else None,
        "max_parallelism": file.max_parallelism if file else None,
        "states": [{"name": d.name, "kind": d.kind, "type": state_type(d)} for d in file.schema().states]
        if file
        else [],
    }


def _summary(summary: PipelineSummary | None, path: str) -> Json:
    head, pending = (summary.head, summary.pending) if summary else (None, None)
    return {
        "head": checkpoint_json(head, path) if head else None,
        "pending": checkpoint_json(pending, path) if pending else None,
        "quarantined": summary.quarantined if summary else 0,
        "failures_in_a_row": summary.failures if summary else 0,
        "cancelled": summary.cancelled if summary else False,
        "generation": summary.generation if summary else 0,
    }


def checkpoint_json(entry: Entry, path: str) -> Json:
    """Return a checkpoint as in the list of checkpoints."""
    events = entry.events
    fields = {name: value for name, value in vars(entry).items() if name not in ("begun_by", "events")}
    return {
        **fields,
        "duration_ms": entry.duration_ms,
        "interval": asdict(entry.interval) if entry.interval else None,
        "events": {"read": events.read, "applied": events.applied, "null_key": events.null_key} if events else None,
        "gate": {"passed": entry.gate.passed, **asdict(entry.gate)} if entry.gate else None,
        "report": bool(entry.report),
        "run": _run_json(entry.begun_by, path),
    }


def _run_json(begun_by: str, path: str) -> Json | None:
    """Return the DAG run of ``dag_id/run_id/task_id/try_number``; None for a checkpoint that a command began."""
    dag_id, _, rest = begun_by.partition("/")
    run_id, *task = rest.rsplit("/", 2)
    if len(task) != 2 or not task[1].isdecimal():
        return None
    return {"dag_id": dag_id, "run_id": run_id, "href": path + run_page(dag_id, run_id)}


def portrait_json(portrait: Portrait, path: str) -> Json:
    """Return a checkpoint with its details. The contents of ``_metadata`` are null if it cannot be read."""
    anatomy = asdict(portrait.anatomy) if portrait.anatomy else dict.fromkeys(_ANATOMY)
    quality = [asdict(row) for row in portrait.quality]
    return {
        **checkpoint_json(portrait.entry, path),
        **anatomy,
        "lineage": [asdict(ancestor) for ancestor in portrait.lineage],
        "quality": [{**row, "sentences": row["sentences"][:MAX_SENTENCES]} for row in quality],
        "problem": portrait.problem,
    }


def comparison_json(comparison: CheckpointComparison, path: str) -> Json:
    return {
        "left": checkpoint_json(comparison.left, path),
        "right": checkpoint_json(comparison.right, path),
        "states": None if comparison.states is None else [asdict(state) for state in comparison.states],
        "files": asdict(comparison.files) if comparison.files else None,
        "command": comparison.command,
        "problem": comparison.problem,
    }


def usage_json(usage: Usage) -> Json:
    return {**asdict(usage), "amplification": usage.amplification}
