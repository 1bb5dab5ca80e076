"""The catalog's tables. Portable between SQLite and PostgreSQL: integers and text only.

Times are epoch milliseconds. References are rows, not counters. The migrations create these
tables; a test holds the two equal.
"""

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    text,
)

METADATA = MetaData()

LEASE = Table(
    "lease",
    METADATA,
    # One row a pipeline, never deleted: its epoch and next_id only grow.
    Column("pipeline", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("next_id", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("head", BigInteger),
    Column("parallelism", Integer),
    Column("owner", Text, nullable=False),
    Column("heartbeat_at_ms", BigInteger, nullable=False),
    Column("cancelled_at_ms", BigInteger),
    # Failed checkpoints with smaller ids do not count any more: somebody has seen them.
    Column("failures_from", BigInteger, nullable=False, server_default="1"),
)

CHECKPOINT = Table(
    "checkpoint",
    METADATA,
    Column("pipeline", Text, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("owner", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("base", BigInteger),
    Column("interval_start_ms", BigInteger),
    Column("interval_end_ms", BigInteger),
    Column("strategy", Text, nullable=False),
    Column("parallelism", Integer, nullable=False),
    Column("directory", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("attempt", Text),
    Column("note", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("completed_at_ms", BigInteger),
    Column("entries", BigInteger),
    Column("size_bytes", BigInteger),
    Column("events_read", BigInteger),
    Column("events_applied", BigInteger),
    Column("events_null_key", BigInteger),
    Column("report", Text, nullable=False),
    Column("metadata_crc32c", BigInteger),
    Column("metadata_size_bytes", BigInteger),
    Column("failure", Text),
    Column("deadline_ms", BigInteger),
    # dag_id/run_id/task_id/try_number of the Airflow task that began it, or what a shell said.
    Column("begun_by", Text, nullable=False, server_default=""),
    Column("sync_ms", BigInteger),
    Column("async_ms", BigInteger),
    Column("upload_ms", BigInteger),
    Column("uploaded_bytes", BigInteger),
    Column("keys_changed", BigInteger),
    # Of a savepoint that stops its pipeline: SUSPEND or DRAIN.
    Column("stop", Text),
    # Distinct keys; where the gate counted them because the manifest does not tell, also per key group.
    Column("keys", BigInteger),
    Column("key_counts", Text),
    PrimaryKeyConstraint("pipeline", "checkpoint_id"),
    ForeignKeyConstraint(["pipeline"], ["lease.pipeline"]),
)
Index("checkpoint_by_key", CHECKPOINT.c.pipeline, CHECKPOINT.c.idempotency_key)
# The database itself refuses a second pending checkpoint of a pipeline.
Index(
    "checkpoint_one_pending",
    CHECKPOINT.c.pipeline,
    unique=True,
    sqlite_where=text("state = 'PENDING' AND kind = 'CHECKPOINT'"),
    postgresql_where=text("state = 'PENDING' AND kind = 'CHECKPOINT'"),
)
# The few that are looked for by their state among all that a pipeline ever had.
Index(
    "checkpoint_quarantined",
    CHECKPOINT.c.pipeline,
    sqlite_where=text("state = 'QUARANTINED'"),
    postgresql_where=text("state = 'QUARANTINED'"),
)

FILE = Table(
    "file",
    METADATA,
    # file_id is the absolute URI; it holds the attempt, hence names one content for ever.
    Column("file_id", Text, primary_key=True),
    Column("pipeline", Text, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("crc32c", BigInteger, nullable=False),
    Column("created_by", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("owner", Text, nullable=False),
)
Index("file_by_state", FILE.c.pipeline, FILE.c.state)

REF = Table(
    "ref",
    METADATA,
    Column("pipeline", Text, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("file_id", Text, nullable=False),
    PrimaryKeyConstraint("pipeline", "checkpoint_id", "file_id"),
    ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"]),
    ForeignKeyConstraint(["file_id"], ["file.file_id"]),
)
Index("ref_by_file", REF.c.file_id)

ATTEMPT = Table(
    "attempt",
    METADATA,
    Column("attempt", Text, primary_key=True),
    Column("pipeline", Text, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"]),
)
Index("attempt_by_checkpoint", ATTEMPT.c.pipeline, ATTEMPT.c.checkpoint_id)

PIN = Table(
    "pin",
    METADATA,
    # A running restore holds what it reads; retention and gc keep clear of it.
    Column("pipeline", Text, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("pipeline", "checkpoint_id", "holder"),
    ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"]),
)

GC_LOG = Table(
    "gc_log",
    METADATA,
    # Which run of gc condemned a file (phase CONDEMNED), and which saw it gone (DELETED).
    Column("run_id", Text, nullable=False),
    Column("pipeline", Text, nullable=False),
    Column("file_id", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("run_id", "file_id", "phase"),
)

QUALITY_RESULT = Table(
    "quality_result",
    METADATA,
    # One row an expectation, a run of the gate; the newest run is the verdict. sentences: a JSON array.
    Column("pipeline", Text, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("run", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("check_group", Text, nullable=False),
    Column("check_name", Text, nullable=False),
    Column("severity", Text, nullable=False),
    Column("passed", Integer, nullable=False),
    Column("checked", BigInteger, nullable=False),
    Column("failed", BigInteger, nullable=False),
    Column("sentences", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("pipeline", "checkpoint_id", "run", "position"),
    ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"]),
)

STORAGE_SAMPLE = Table(
    "storage_sample",
    METADATA,
    # What a pipeline's files came to at a moment: written by whoever changes them, for the curve over time.
    Column("pipeline", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("files", BigInteger, nullable=False),
    Column("live_bytes", BigInteger, nullable=False),
    Column("shared_bytes", BigInteger, nullable=False),
    Column("garbage_bytes", BigInteger, nullable=False),
    Column("savepoint_bytes", BigInteger, nullable=False),
    PrimaryKeyConstraint("pipeline", "at_ms"),
    ForeignKeyConstraint(["pipeline"], ["lease.pipeline"]),
)
