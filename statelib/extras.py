"""Optional parts of an installation: which extra of the wheel brings which packages, and the error that names it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from statelib.errors import InvalidRequestError, NotFoundError

EXTRAS = {
    "spark": ("pyspark", "py4j"),
    "quality": ("great_expectations", "pandas"),
    "objects": ("obstore",),
    "postgres": ("psycopg",),
    "delta": ("deltalake",),
    "iceberg": ("pyiceberg",),
    "otel": ("opentelemetry",),
    "query": ("duckdb",),
    "airflow": ("airflow", "fastapi", "anyio", "starlette"),
}
"""Extra of the wheel -> the import packages that it brings."""


def require(*extras: str) -> None:
    """Raise NotFoundError (``missing-extra``) for the first of the extras that is not installed; import nothing."""
    for extra in extras:
        if find_spec(EXTRAS[extra][0]) is None:
            raise _missing(EXTRAS[extra][0], extra)


@contextmanager
def extras_named() -> Iterator[None]:
    """Raise NotFoundError (``missing-extra``) for a package that an extra brings, in place of ModuleNotFoundError."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = next((extra for extra, packages in EXTRAS.items() if package in packages), None)
        if extra is None or find_spec(package) is not None:
            raise  # a part of an installed package is missing: that installation is broken, and its error says where
        raise _missing(package, extra) from error


def require_one_pyspark() -> None:
    """Raise InvalidRequestError (``two-pysparks``) if ``pyspark`` and ``pyspark-client`` differ in their minor version.

    Both have the same files, and the one that was installed last has overwritten those of the other. Airflow's provider
    for Spark requires the client. A Spark that was not installed as a package is not judged.
    """
    try:
        pyspark, client = version("pyspark"), version("pyspark-client")
    except PackageNotFoundError:
        return
    if pyspark.split(".")[:2] != client.split(".")[:2]:
        raise InvalidRequestError(
            f"pyspark {pyspark} and pyspark-client {client} overwrite each other's files: expected the same version",
            kind="two-pysparks",
            hint=f"pip install --force-reinstall --no-deps pyspark-client=={pyspark} pyspark=={pyspark}, or another "
            "version that both have",
        )


def _missing(package: str, extra: str) -> NotFoundError:
    return NotFoundError(
        f"this needs the package {package}, which is not installed",
        kind="missing-extra",
        hint=f'pip install "statelib[{extra}]"',
    )
