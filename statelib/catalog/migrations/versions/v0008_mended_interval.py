"""The view ``checkpoint_history`` has the interval that a checkpoint corrects, in place of an interval of its own."""

from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


VIEW = """
CREATE VIEW checkpoint_history AS
SELECT
  c.pipeline, c.checkpoint_id, c.kind, c.state, c.owner, c.strategy, c.parallelism, c.generation, c.base,
  CASE WHEN l.head = c.checkpoint_id THEN 1 ELSE 0 END AS is_head,
  {interval_start} AS interval_start, {interval_end} AS interval_end,
  {mended_start} AS mended_start, {mended_end} AS mended_end,
  {created} AS created_at, {completed} AS completed_at,
  c.completed_at_ms - c.created_at_ms AS duration_ms,
  c.completed_at_ms - c.interval_end_ms AS lag_ms,
  c.sync_ms, c.async_ms, c.upload_ms,
  c.entries, c.keys, c.keys_changed, c.size_bytes, c.uploaded_bytes,
  c.events_read, c.events_applied, c.events_null_key,
  CASE WHEN c.completed_at_ms > c.created_at_ms AND c.interval_end_ms IS NOT NULL
    THEN c.events_applied * 1000.0 / (c.completed_at_ms - c.created_at_ms) END AS events_per_second,
  (SELECT COUNT(*) FROM attempt a
    WHERE a.pipeline = c.pipeline AND a.checkpoint_id = c.checkpoint_id) AS attempts,
  c.failure, c.reason, c.note, c.begun_by, c.directory, c.report,
  c.interval_start_ms, c.interval_end_ms, {mended_start_ms} AS mended_start_ms, {mended_end_ms} AS mended_end_ms,
  c.created_at_ms, c.completed_at_ms
FROM checkpoint c JOIN lease l ON l.pipeline = c.pipeline
"""
MOMENT = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')",
    "postgresql": """to_char(to_timestamp({column} / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')""",
}
"""UTC to the millisecond, ISO 8601; NULL of NULL."""
IS_MEND = {
    "sqlite": "c.idempotency_key GLOB 'mend:*[0-9]:*[0-9]@*'",
    "postgresql": "c.idempotency_key ~ '^mend:-?[0-9]{1,16}:-?[0-9]{1,16}@[0-9]+$'",
}
"""Whether the key is ``mend:<start>:<end>@<head>``. A cast of SQLite ends at the first character that is no digit."""
START = {
    "sqlite": "CAST(substr(c.idempotency_key, 6) AS INTEGER)",
    "postgresql": "split_part(c.idempotency_key, ':', 2)::bigint",
}
END = {
    "sqlite": "CAST(substr(c.idempotency_key, 6 + instr(substr(c.idempotency_key, 6), ':')) AS INTEGER)",
    "postgresql": "split_part(split_part(c.idempotency_key, ':', 3), '@', 1)::bigint",
}


def upgrade() -> None:
    connection = op.get_bind()
    dialect = connection.dialect.name
    start, end = (f"(CASE WHEN {IS_MEND[dialect]} THEN {bound[dialect]} END)" for bound in (START, END))
    columns = {
        "interval_start": "c.interval_start_ms",
        "interval_end": "c.interval_end_ms",
        "mended_start": start,
        "mended_end": end,
        "created": "c.created_at_ms",
        "completed": "c.completed_at_ms",
    }
    moments = {name: MOMENT[dialect].format(column=column) for name, column in columns.items()}
    connection.exec_driver_sql("DROP VIEW checkpoint_history")
    connection.exec_driver_sql(VIEW.format(**moments, mended_start_ms=start, mended_end_ms=end))
