"""The catalog's tables. Their columns are integers and text only, which SQLite and PostgreSQL have in common.

Times are epoch milliseconds. References are rows, not counters. The migrations create these
tables; a test compares the result with this module.
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
    # One row per pipeline. It is never deleted, and its epoch and next_id only grow.
    Column("pipeline", Text, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
    Column("next_id", BigInteger, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("head", BigInteger),
    Column("parallelism", Integer),
    Column("owner", Text, nullable=False),
    Column("heartbeat_at_ms", BigInteger, nullable=False),
    Column("cancelled_at_ms", BigInteger),
    # Failed checkpoints with smaller ids no longer count: a resume or restore came after them.
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
    # dag_id/run_id/task_id/try_number of the Airflow task that began it, or the name of the command.
    Column("begun_by", Text, nullable=False, server_default=""),
    Column("sync_ms", BigInteger),
    Column("async_ms", BigInteger),
    Column("upload_ms", BigInteger),
    Column("uploaded_bytes", BigInteger),
    Column("keys_changed", BigInteger),
    # SUSPEND or DRAIN if a savepoint stops its pipeline, else NULL.
    Column("stop", Text),
    # keys: the number of distinct keys. key_counts: the numbers per key group, if the gate counted the keys because the
    # manifest has no number.
    Column("keys", BigInteger),
    Column("key_counts", Text),
    PrimaryKeyConstraint("pipeline", "checkpoint_id"),
    ForeignKeyConstraint(["pipeline"], ["lease.pipeline"]),
)
Index("checkpoint_by_key", CHECKPOINT.c.pipeline, CHECKPOINT.c.idempotency_key)
# The database itself refuses a second PENDING checkpoint of a pipeline.
Index(
    "checkpoint_one_pending",
    CHECKPOINT.c.pipeline,
    unique=True,
    sqlite_where=text("state = 'PENDING' AND kind = 'CHECKPOINT'"),
    postgresql_where=text("state = 'PENDING' AND kind = 'CHECKPOINT'"),
)
# Few of a pipeline's checkpoints are in quarantine: this index finds them without reading the others.
Index(
    "checkpoint_quarantined",
    CHECKPOINT.c.pipeline,
    sqlite_where=text("state = 'QUARANTINED'"),
    postgresql_where=text("state = 'QUARANTINED'"),
)

FILE = Table(
    "file",
    METADATA,
    # file_id is the absolute URI. It contains the attempt, so that its content never changes.
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
    # A running restore pins the checkpoint that it reads. Retention and gc do not touch a pinned checkpoint.
    Column("pipeline", Text, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("holder", Text, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("pipeline", "checkpoint_id", "holder"),
    ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"]),
)

RESTORE = Table(
    "restore",
    METADATA,
    # One row per restore that had a key. A repeated call with the key changes nothing.
    Column("pipeline", Text, nullable=False),
    Column("idempotency_key", Text, nullable=False),
    Column("checkpoint_id", BigInteger, nullable=False),
    Column("restored_at_ms", BigInteger, nullable=False),
    PrimaryKeyConstraint("pipeline", "idempotency_key"),
    ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"]),
)

GC_LOG = Table(
    "gc_log",
    METADATA,
    # The run of gc that condemned a file (phase CONDEMNED), and the run that deleted it (phase DELETED).
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
    # One row per expectation and run of the gate. The newest run is the verdict. sentences: a JSON array of texts.
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
    # The size of a pipeline's files at one time. Each operation that changes the files adds a row, for the chart.
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
