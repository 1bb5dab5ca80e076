"""The table ``restore`` has the keys of the restores that were done."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "restore",
        sa.Column("pipeline", sa.Text, nullable=False),
        sa.Column("idempotency_key", sa.Text, nullable=False),
        sa.Column("checkpoint_id", sa.BigInteger, nullable=False),
        sa.Column("restored_at_ms", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("pipeline", "idempotency_key"),
        sa.ForeignKeyConstraint(["pipeline", "checkpoint_id"], ["checkpoint.pipeline", "checkpoint.checkpoint_id"]),
    )
