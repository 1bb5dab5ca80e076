"""Why checkpoints were aborted and until when they may be pending; whether a pipeline is cancelled."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("failure", sa.Text))
    op.add_column("checkpoint", sa.Column("deadline_ms", sa.BigInteger))
    op.add_column("lease", sa.Column("cancelled_at_ms", sa.BigInteger))
    op.add_column("lease", sa.Column("failures_from", sa.BigInteger, nullable=False, server_default="1"))
    # What failed before there were reasons counts for nothing.
    op.execute("UPDATE lease SET failures_from = next_id")
    op.execute(
        "UPDATE checkpoint SET failure = CASE "
        "WHEN reason LIKE 'superseded by the restore%' THEN 'CHECKPOINT_COORDINATOR_SUSPEND' "
        "WHEN reason LIKE 'superseded by checkpoint%' THEN 'CHECKPOINT_SUBSUMED' "
        "ELSE 'TASK_FAILURE' END WHERE state = 'ABORTED'"
    )
