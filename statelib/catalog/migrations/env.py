"""Alembic's entry point. The migrations use the caller's connection and transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()
