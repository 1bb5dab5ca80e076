"""A database for the Airflow of a test."""

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from demo.places import Places
from tests.support.postgresql_server import DATABASE_USER, NoServer, postgresql_server


@contextmanager
def airflow_database(places: Places) -> Iterator[Places]:
    """Yield the places with the settings by which Airflow keeps its metadata in a PostgreSQL that ends with the block.
    Without a server there are none, and a warning says that Airflow uses SQLite: on a busy machine its components can
    then end because the database is locked."""
    with ExitStack() as stack:
        try:
            socket = stack.enter_context(postgresql_server())
        except NoServer as reason:
            warnings.warn(f"Airflow uses SQLite: {reason}", stacklevel=3)
            yield places
            return
        url = f"postgresql+psycopg://{DATABASE_USER}@/postgres?host={socket}"
        database = {f"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN{kind}": url for kind in ("", "_ASYNC")}
        yield replace(places, settings={**places.settings, **database})
