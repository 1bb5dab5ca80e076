"""The opening of an Iceberg catalog, for tables that are published and for tables that are read."""

from typing import TYPE_CHECKING

from statelib.errors import InvalidRequestError

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_SQL_TABLES = 2
"""The number of tables that pyiceberg creates in the database of a new SQL catalog, one after the other."""


def open_catalog(name: str, what: str, where: str = "") -> "Catalog":
    """Return a catalog that pyiceberg is configured for; the caller closes it. ``what``: the beginning of the message
    of an error. ``where``: the processes that need the configuration, for its hint.

    Raises InvalidRequestError (``no-iceberg-catalog``) if it is not configured."""
    from pyiceberg.catalog import load_catalog
    from pyiceberg.utils.config import Config

    properties = Config().get_catalog_config(name)
    if properties is None:
        raise InvalidRequestError(
            f"{what}: no Iceberg catalog {name!r} is configured",
            kind="no-iceberg-catalog",
            hint=f"set PYICEBERG_CATALOG__{name.upper()}__URI{where}, or describe it in .pyiceberg.yaml",
        )
    for _ in range(_SQL_TABLES):
        try:
            return load_catalog(name, **properties)
        except Exception as error:
            # Processes that open a new SQL catalog at once all create its tables, and all but one fail at each table.
            if "already exists" not in str(error):
                raise
    return load_catalog(name, **properties)
