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
    "checkpoint_id": "number of the checkpoint within its pipeline; never given out twice",
    "kind": "CHECKPOINT or SAVEPOINT",
    "state": "PENDING, COMPLETED, QUARANTINED, ABORTED, DELETING or DELETED",
    "owner": "SYSTEM: retention and gc may delete it; USER: only its user may",
    "strategy": "full, incremental, changelog or canonical",
    "parallelism": "subtasks",
    "generation": "how often the pipeline had been restored when it began",
    "base": "the checkpoint it was built on; NULL: from nothing",
    "is_head": "1 where the pipeline stands, else 0",
    "interval_start": f"start of the data interval, {_UTC}; NULL of savepoints",
    "interval_end": "its end, exclusive",
    "created_at": "when it was begun",
    "completed_at": "when it was registered; NULL if it was not",
    "duration_ms": "from created_at to completed_at",
    "lag_ms": "from interval_end to completed_at: how old the state was when it was there",
    "sync_ms": "synchronous part of the slowest subtask",
    "async_ms": "asynchronous part of the slowest subtask",
    "upload_ms": "of the asynchronous part, how long storage took; NULL of checkpoints before it was measured",
    "entries": "entries of all states",
    "keys": "distinct keys that have state; NULL where it is not known",
    "keys_changed": "distinct keys that events or timers of the interval wrote; NULL where it was not counted",
    "size_bytes": "all files that it needs, those of earlier checkpoints included",
    "uploaded_bytes": "what was written for it",
    "events_read": "events of the interval in the source",
    "events_applied": "those that were applied",
    "events_null_key": "those without a key, left out",
    "events_per_second": "applied events by duration_ms",
    "attempts": "tries at it that wrote files",
    "failure": "reason code of an aborted one",
    "reason": "the same in words",
    "note": "what its user noted",
    "begun_by": "dag_id/run_id/task_id/try_number of the Airflow task, or which command",
    "directory": "URI of the directory of its _metadata",
    "report": "URI of its quality report",
    "interval_start_ms": "interval_start in epoch milliseconds",
    "interval_end_ms": "interval_end likewise",
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
    "severity": "what follows where it does not hold",
    "passed": "1 where it holds, else 0",
    "checked": "how many things were looked at",
    "failed": "how many of them were not as expected",
    "sentences": "what was found, a JSON array of sentences",
    "is_newest": "1 in the run whose verdict counts, else 0",
    "at": f"when, {_UTC}",
    "at_ms": "the same in epoch milliseconds",
}
STORAGE_HISTORY = {
    "pipeline": "name of the pipeline",
    "at": f"when it was looked, {_UTC}",
    "files": "files of its checkpoints and savepoints",
    "live_bytes": "what living checkpoints need",
    "shared_bytes": "of that, what several of them need",
    "garbage_bytes": "what nothing needs any more and gc has not deleted yet",
    "savepoint_bytes": "what savepoints need",
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
