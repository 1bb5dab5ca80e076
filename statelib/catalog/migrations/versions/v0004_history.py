"""What a checkpoint cost and who began it, what the gate found, and how much storage was in use when."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("begun_by", sa.Text, nullable=False, server_default=""))
    for name in ("sync_ms", "async_ms", "upload_ms", "uploaded_bytes", "keys_changed"):
        op.add_column("checkpoint", sa.Column(name, sa.BigInteger))
    put_aside = sa.text("state = 'QUARANTINED'")
    op.create_index(
        "checkpoint_quarantined", "checkpoint", ["pipeline"], sqlite_where=put_aside, postgresql_where=put_aside
    )
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
