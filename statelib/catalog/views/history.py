"""The catalog's SQL views and the meaning of their columns. The migrations create the views."""

from collections.abc import Mapping

from sqlalchemy import column, select, table

from statelib.catalog.engine import Transaction
from statelib.catalog.tables.row_checks import checked
from statelib.catalog.tables.schema import CHECKPOINT
from statelib.model.ids import PipelineName

Row = dict[str, str | int | float | None]
_UTC = "UTC, ISO 8601 to the millisecond, as text: sorts as time does"

CHECKPOINT_HISTORY = {
    "pipeline": "name of the pipeline",
    "checkpoint_id": "number of the checkpoint within its pipeline; never used twice",
    "kind": "CHECKPOINT or SAVEPOINT",
    "state": "PENDING, COMPLETED, QUARANTINED, ABORTED, DELETING or DELETED",
    "owner": "SYSTEM: retention and gc may delete it; USER: only its user may",
    "strategy": "full, incremental, changelog or canonical",
    "parallelism": "subtasks",
    "generation": "number of the pipeline's restores before it began",
    "base": "the checkpoint it was built on; NULL: from nothing",
    "is_head": "1 if it is the pipeline's head, else 0",
    "interval_start": f"start of the data interval, {_UTC}; NULL of savepoints and corrections",
    "interval_end": "its end, exclusive",
    "mended_start": f"start of the earlier interval that it corrects, {_UTC}; NULL if it corrects none",
    "mended_end": "its end, exclusive",
    "created_at": "when it was begun",
    "completed_at": "when it was registered; NULL if it was not",
    "duration_ms": "from created_at to completed_at",
    "lag_ms": "from interval_end to completed_at: the age of the data when the checkpoint completed",
    "sync_ms": "synchronous part of the slowest subtask",
    "async_ms": "asynchronous part of the slowest subtask",
    "upload_ms": "the part of async_ms that storage took; NULL if it was not measured",
    "entries": "entries of all states",
    "keys": "distinct keys that have state; NULL where it is not known",
    "keys_changed": "distinct keys that events or timers of the interval wrote; NULL where it was not counted",
    "size_bytes": "size of all files that it needs, including files of earlier checkpoints",
    "uploaded_bytes": "bytes that were written for it",
    "events_read": "events of the interval in the source",
    "events_applied": "events that were applied",
    "events_null_key": "events without a key, which were left out",
    "events_per_second": "applied events by duration_ms",
    "attempts": "number of attempts at it that wrote files",
    "failure": "reason code of an aborted checkpoint",
    "reason": "the same in words",
    "note": "note of its user",
    "begun_by": "dag_id/run_id/task_id/try_number of the Airflow task, or which command",
    "directory": "URI of the directory of its _metadata",
    "report": "URI of its quality report",
    "interval_start_ms": "interval_start in epoch milliseconds",
    "interval_end_ms": "interval_end likewise",
    "mended_start_ms": "mended_start likewise",
    "mended_end_ms": "mended_end likewise",
    "created_at_ms": "created_at likewise",
    "completed_at_ms": "completed_at likewise",
}
QUALITY_HISTORY = {
    "pipeline": "name of the pipeline",
    "checkpoint_id": "the checkpoint that was judged",
    "run": "which run of the gate, from 1",
    "position": "place of the expectation in its run",
    "check_group": "what kind of check it is",
    "check_name": "its name",
    "severity": "result of a failed check: WARN, QUARANTINE or FAIL",
    "passed": "1 if the check passed, else 0",
    "checked": "number of checked things",
    "failed": "number of things that were not as expected",
    "sentences": "the findings, a JSON array of sentences",
    "is_newest": "1 in the run whose verdict counts, else 0",
    "at": f"when, {_UTC}",
    "at_ms": "the same in epoch milliseconds",
}
STORAGE_HISTORY = {
    "pipeline": "name of the pipeline",
    "at": f"when it was looked, {_UTC}",
    "files": "files of its checkpoints and savepoints",
    "live_bytes": "bytes that living checkpoints need",
    "shared_bytes": "the part of live_bytes that several checkpoints need",
    "garbage_bytes": "bytes that no checkpoint needs, and that gc has not deleted yet",
    "savepoint_bytes": "bytes that savepoints need",
    "at_ms": "at in epoch milliseconds",
}
VIEWS: Mapping[str, Mapping[str, str]] = {
    "checkpoint_history": CHECKPOINT_HISTORY,
    "quality_history": QUALITY_HISTORY,
    "storage_history": STORAGE_HISTORY,
}
"""Columns of each view in their order, with a description. Columns are added, but never removed or renamed."""


class History:
    """Queries of the catalog's SQL views."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def checkpoints(self, pipeline: PipelineName | None, limit: int | None) -> list[Row]:
        """Return rows of the view ``checkpoint_history``, the newest first, of one pipeline or of all (None)."""
        view = table("checkpoint_history", *map(column, CHECKPOINT_HISTORY))
        newest_first = (view.c.created_at_ms.desc(), view.c.pipeline, view.c.checkpoint_id.desc())
        statement = select(view).order_by(*newest_first).limit(limit)
        if pipeline is not None:
            statement = statement.where(view.c.pipeline == pipeline)
        with self._transaction(read_only=True) as connection:
            return [_row(checked(CHECKPOINT, row, any_word=True)) for row in connection.execute(statement).all()]


def _row(values: Mapping[str, object]) -> Row:
    """Return the row with floats instead of decimals: PostgreSQL computes decimals where SQLite computes floats."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: object) -> str | int | float | None:
    return value if value is None or isinstance(value, str | int | float) else float(str(value))
