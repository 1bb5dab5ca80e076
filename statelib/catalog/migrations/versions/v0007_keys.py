"""How many distinct keys a checkpoint has, beside its entries. ``key_counts``: per key group, base64 of 64-bit
little-endian numbers, where the gate counted what the manifest does not tell."""

import sqlalchemy as sa
from alembic import op

from statelib.catalog.migrations.versions.v0005_history_views import CHECKPOINTS, MOMENT

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("checkpoint", sa.Column("keys", sa.BigInteger))
    op.add_column("checkpoint", sa.Column("key_counts", sa.Text))
    connection = op.get_bind()
    moment = MOMENT[connection.dialect.name]
    of = {
        "interval_start": "c.interval_start_ms",
        "interval_end": "c.interval_end_ms",
        "created": "c.created_at_ms",
        "completed": "c.completed_at_ms",
    }
    moments = {name: moment.format(column=column) for name, column in of.items()}
    view = CHECKPOINTS.replace("c.entries, c.keys_changed,", "c.entries, c.keys, c.keys_changed,")
    connection.exec_driver_sql("DROP VIEW checkpoint_history")
    connection.exec_driver_sql(view.format(**moments))
