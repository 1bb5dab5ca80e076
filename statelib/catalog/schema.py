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
