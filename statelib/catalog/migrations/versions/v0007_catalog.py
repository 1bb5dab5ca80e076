"""The catalog of the first release: tables of checkpoints, files, gate results and storage use, and views for BI tools.

The revision counts the drafts before the release: a catalog of the last draft has the same schema. A later migration
that rebuilds or renames a table drops the views first."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = None
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
  c.entries, c.keys, c.keys_changed, c.size_bytes, c.uploaded_bytes,
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
    _create_lease_and_checkpoint()
    _create_files_and_attempts()
    _create_history()
    _create_views()


def _create_files_and_attempts() -> None:
    op.create_table(
        "file",
        sa.Column("file_id", sa.Text, primary_key=True),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("crc32c", sa.BigInteger, nullable=False),
        sa.Column("created_by", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
    )
    op.create_table(
        "ref",
        *_checkpoint_key(),
        sa.Column("file_id", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "checkpoint_id", "file_id"),
        _to_checkpoint(),
        sa.ForeignKeyConstraint(["file_id"], ["file.file_id"]),
    )
    op.create_index("ref_by_file", "ref", ["file_id"])
    op.create_table(
        "attempt",
        sa.Column("attempt", sa.Text, primary_key=True),
        *_checkpoint_key(),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        _to_checkpoint(),
    )
    op.create_index("attempt_by_checkpoint", "attempt", ["pipeline", "checkpoint_id"])
    op.create_table(
        "pin",
        *_checkpoint_key(),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "checkpoint_id", "holder"),
        _to_checkpoint(),
    )


def _create_lease_and_checkpoint() -> None:
    op.create_table(
        "lease",
        sa.Column("pipeline", sa.Text, primary_key=True),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in ("epoch", "next_id", "generation")),
        sa.Column("head", sa.BigInteger),
        sa.Column("parallelism", sa.Integer),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("heartbeat_at_ms", sa.BigInteger, nullable=False),
        sa.Column("cancelled_at_ms", sa.BigInteger),
        sa.Column("failures_from", sa.BigInteger, nullable=False, server_default="1"),
    )
    op.create_table(
        "checkpoint",
        *_checkpoint_key(),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("kind", "state", "owner")),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("idempotency_key", sa.Text, nullable=False),
        sa.Column("generation", sa.BigInteger, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in ("base", "interval_start_ms", "interval_end_ms")),
        sa.Column("strategy", sa.Text, nullable=False),
        sa.Column("parallelism", sa.Integer, nullable=False),
        sa.Column("directory", sa.Text, nullable=False),
        sa.Column("created_at_ms", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Text),
        *(sa.Column(name, sa.Text, nullable=False) for name in ("note", "reason")),
        *(sa.Column(name, sa.BigInteger) for name in ("completed_at_ms", "entries", "size_bytes")),
        *(sa.Column(name, sa.BigInteger) for name in ("events_read", "events_applied", "events_null_key")),
        sa.Column("report", sa.Text, nullable=False),
        *(sa.Column(name, sa.BigInteger) for name in ("metadata_crc32c", "metadata_size_bytes")),
        sa.Column("failure", sa.Text),
        sa.Column("deadline_ms", sa.BigInteger),
        sa.Column("begun_by", sa.Text, nullable=False, server_default=""),
        *(sa.Column(name, sa.BigInteger) for name in ("sync_ms", "async_ms", "upload_ms", "uploaded_bytes")),
        *(sa.Column(name, sa.BigInteger) for name in ("keys_changed", "keys")),
        *(sa.Column(name, sa.Text) for name in ("key_counts", "stop")),
        sa.PrimaryKeyConstraint("pipeline", "checkpoint_id"),
        sa.ForeignKeyConstraint(["pipeline"], ["lease.pipeline"]),
    )
    op.create_index("checkpoint_by_key", "checkpoint", ["pipeline", "idempotency_key"])
    _create_index_of_some("checkpoint_one_pending", "state = 'PENDING' AND kind = 'CHECKPOINT'", unique=True)
    _create_index_of_some("checkpoint_quarantined", "state = 'QUARANTINED'")


def _create_index_of_some(name: str, condition: str, *, unique: bool = False) -> None:
    """Create an index by pipeline of those checkpoints that fulfil the condition."""
    where = sa.text(condition)
    op.create_index(name, "checkpoint", ["pipeline"], unique=unique, sqlite_where=where, postgresql_where=where)


def _create_history() -> None:
    op.create_table(
        "quality_result",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger, nullable=False),
        sa.Column("run", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("check_group", sa.Text, nullable=False),
        sa.Column("check_name", sa.Text, nullable=False),
        sa.Column("severity", sa.Text, nullable=False),
        sa.Column("passed", sa.Integer, nullable=False),
        sa.Column("checked", sa.BigInteger, nullable=False),
        sa.Column("failed", sa.BigInteger, nullable=False),
        sa.Column("sentences", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "checkpoint_id", "run", "position"),
        sa.ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"]),
    )
    op.create_table(
        "storage_sample",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("files", sa.BigInteger, nullable=False),
        sa.Column("live_bytes", sa.BigInteger, nullable=False),
        sa.Column("shared_bytes", sa.BigInteger, nullable=False),
        sa.Column("garbage_bytes", sa.BigInteger, nullable=False),
        sa.Column("savepoint_bytes", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "at_ms"),
        sa.ForeignKeyConstraint(["pipeline"], ["lease.pipeline"]),
    )
    op.create_table(
        "gc_log",
        sa.Column("run_id", sa.Text, nullable=False),
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("file_id", sa.Text, nullable=False),
        sa.Column("phase", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("run_id", "file_id", "phase"),
    )
    op.create_index("file_by_state", "file", ["pipeline", "state"])


def _create_views() -> None:
    connection = op.get_bind()
    moment = MOMENT[connection.dialect.name]
    columns = {
        "interval_start": "c.interval_start_ms",
        "interval_end": "c.interval_end_ms",
        "created": "c.created_at_ms",
        "completed": "c.completed_at_ms",
    }
    moments = {name: moment.format(column=column) for name, column in columns.items()}
    connection.exec_driver_sql(CHECKPOINTS.format(**moments))
    connection.exec_driver_sql(QUALITY.format(at=moment.format(column="q.at_ms")))
    connection.exec_driver_sql(STORAGE.format(at=moment.format(column="s.at_ms")))


def _checkpoint_key() -> tuple[sa.Column[str], sa.Column[int]]:
    return (
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger, nullable=False),
    )


def _to_checkpoint() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"])
