"""Savepoints that stop their pipeline."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("stop", sa.Text))
