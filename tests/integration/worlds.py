"""Deployments for tests: a directory each, SQLite, the project's own pipelines."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval

CHECKOUT = Path(__file__).resolve().parents[2]


def new_deployment(root: Path, data: Path) -> Deployment:
    """A deployment in ``root``, on SQLite, with the project's own pipelines."""
    for name in ("state", "docs", "scratch"):
        (root / name).mkdir(parents=True, exist_ok=True)
    return Deployment(
        catalog_url=f"sqlite:///{root}/catalog.db",
        storage_root=str(root / "state"),
        pipelines_directory=str(CHECKOUT / "dags" / "pipelines"),
        data=str(data),
        docs_directory=str(root / "docs"),
        work_directory=str(root / "scratch"),
    )


def day(number: int) -> DataInterval:
    """The data interval of a day of January 2013, UTC."""
    start = datetime(2013, 1, 1, tzinfo=UTC) + timedelta(days=number - 1)
    return DataInterval(int(start.timestamp() * 1000), int((start + timedelta(days=1)).timestamp() * 1000))
