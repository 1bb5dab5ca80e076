"""The first catalog: lease, checkpoint, file, ref, attempt, pin."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    _create_lease_and_checkpoint()
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
        sa.PrimaryKeyConstraint("pipeline", "checkpoint_id"),
        sa.ForeignKeyConstraint(["pipeline"], ["lease.pipeline"]),
    )
    op.create_index("checkpoint_by_key", "checkpoint", ["pipeline", "idempotency_key"])
    pending = sa.text("state = 'PENDING' AND kind = 'CHECKPOINT'")
    op.create_index(
        "checkpoint_one_pending",
        "checkpoint",
        ["pipeline"],
        unique=True,
        sqlite_where=pending,
        postgresql_where=pending,
    )


def _checkpoint_key() -> tuple[sa.Column[str], sa.Column[int]]:
    return (
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger, nullable=False),
    )


def _to_checkpoint() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"])
