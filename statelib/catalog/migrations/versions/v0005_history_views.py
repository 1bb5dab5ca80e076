"""The catalog's history as tables for SQL and BI tools: moments as text, durations computed, one row a thing.

Columns may be added to the tables below; a later migration that rebuilds or renames one drops the views first."""

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

CHECKPOINTS = """
CREATE VIEW checkpoint_history AS
SELECT
  c.pipeline, c.checkpoint_id, c.kind, c.state, c.owner, c.strategy, c.parallelism, c.generation, c.base,
  CASE WHEN l.head = c.checkpoint_id THEN 1 ELSE 0 END AS is_head,
  {interval_start} AS interval_start, {interval_end} AS interval_end,
  {created} AS created_at, {completed} AS completed_at,
  c.completed_at_ms - c.created_at_ms AS duration_ms,
  c.completed_at_ms - c.interval_end_ms AS lag_ms,
  c.sync_ms, c.async_ms, c.upload_ms,
  c.entries, c.keys_changed, c.size_bytes, c.uploaded_bytes,
  c.events_read, c.events_applied, c.events_null_key,
  CASE WHEN c.completed_at_ms > c.created_at_ms AND c.interval_end_ms IS NOT NULL
    THEN c.events_applied * 1000.0 / (c.completed_at_ms - c.created_at_ms) END AS events_per_second,
  (SELECT COUNT(*) FROM attempt a
    WHERE a.pipeline = c.pipeline AND a.checkpoint_id = c.checkpoint_id) AS attempts,
  c.failure, c.reason, c.note, c.begun_by, c.directory, c.report,
  c.interval_start_ms, c.interval_end_ms, c.created_at_ms, c.completed_at_ms
FROM checkpoint c JOIN lease l ON l.pipeline = c.pipeline
"""
QUALITY = """
CREATE VIEW quality_history AS
SELECT
  q.pipeline, q.checkpoint_id, q.run, q.position, q.check_group, q.check_name, q.severity, q.passed, q.checked,
  q.failed, q.sentences,
  CASE WHEN q.run = (SELECT MAX(r.run) FROM quality_result r
    WHERE r.pipeline = q.pipeline AND r.checkpoint_id = q.checkpoint_id) THEN 1 ELSE 0 END AS is_newest,
  {at} AS at, q.at_ms
FROM quality_result q
"""
STORAGE = """
CREATE VIEW storage_history AS
SELECT s.pipeline, {at} AS at, s.files, s.live_bytes, s.shared_bytes, s.garbage_bytes, s.savepoint_bytes, s.at_ms
FROM storage_sample s
"""
MOMENT = {
    "sqlite": "strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')",
    "postgresql": """to_char(to_timestamp({column} / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')""",
}
"""UTC to the millisecond, ISO 8601; NULL of NULL."""


def upgrade() -> None:
    connection = op.get_bind()
    moment = MOMENT[connection.dialect.name]
    of = {
        "interval_start": "c.interval_start_ms",
        "interval_end": "c.interval_end_ms",
        "created": "c.created_at_ms",
        "completed": "c.completed_at_ms",
    }
    moments = {name: moment.format(column=column) for name, column in of.items()}
    connection.exec_driver_sql(CHECKPOINTS.format(**moments))
    connection.exec_driver_sql(QUALITY.format(at=moment.format(column="q.at_ms")))
    connection.exec_driver_sql(STORAGE.format(at=moment.format(column="s.at_ms")))
