"""Optional parts of an installation: which extra of the wheel brings which packages, and the error that names it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

from statelib.errors import NotFoundError

EXTRAS = {
    "spark": ("pyspark", "py4j"),
    "quality": ("great_expectations", "pandas"),
    "objects": ("obstore",),
    "postgres": ("psycopg",),
    "otel": ("opentelemetry",),
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


def _missing(package: str, extra: str) -> NotFoundError:
    return NotFoundError(
        f"this needs the package {package}, which is not installed",
        kind="missing-extra",
        hint=f'pip install "statelib[{extra}]"',
    )
