"""Where concrete classes are named and the environment is read: everything else gets them as arguments."""

import os
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from statelib.crash_points import crash_point
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.model.ids import PipelineName
from statelib.storage import registry
from statelib.storage.filesystem.removal import CheckpointRemover
from statelib.storage.local.store import LocalStateStore
from statelib.storage.objects.clients import ALLOW_HTTP
from statelib.storage.placed_removal import PlacedRemover
from statelib.storage.places import CheckpointStorage, StorageSettings
from statelib.storage.views import CheckpointStorageWorkerView, FileMergingSettings
from statelib.telemetry.logs import LogSettings
from statelib.telemetry.metrics import Telemetry
from statelib.telemetry.sending import sending

if TYPE_CHECKING:
    from statelib.catalog.catalog import Catalog
from statelib.telemetry.secrets import secrets

VARIABLES = {
    "STATELIB_CATALOG": "SQLAlchemy URL of the catalog, e.g. sqlite:////srv/statelib/catalog.db",
    "STATELIB_STORAGE": "directory, file:, s3:, gs:, az: or abfss: URI under which checkpoints are kept",
    "STATELIB_PIPELINES": "directory of the pipeline files",
    "STATELIB_DATA": "what {data} stands for in a pipeline's source path",
    "STATELIB_DOCS": "directory of the quality reports",
    "STATELIB_WORK": "scratch directory of Spark tasks",
}


OPTIONAL = {
    "STATELIB_LOCAL": "directory for local copies of state, on each host's own disk; default: below STATELIB_WORK"
}


LOGGING = {
    "STATELIB_LOG_FORMAT": "text or json: one object a line; in Airflow's tasks Airflow decides. Default: text",
    "STATELIB_LOG_LEVEL": "DEBUG, INFO, WARNING or ERROR. Default: INFO of Spark jobs, WARNING of the command line",
}


NETWORK = {
    ALLOW_HTTP: "true lets object storages be reached by http:, which sends credentials and state in the clear, and is "
    "for executors to have, too. Default: false, such an endpoint is refused (insecure-endpoint)"
}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@cache
def catalog_at(url: str) -> "Catalog":
    """Return the catalog at ``url``, one object per process for those who write and those who only look. It connects
    to nothing yet, and keeps nothing of a SQLite file that may be replaced."""
    from statelib.catalog.catalog import Catalog  # here, so that Spark's workers start without SQLAlchemy

    return Catalog(url, now_ms)


@dataclass(frozen=True)
class Deployment:
    """One place where pipelines run: its catalog, its storage, its directories. Picklable.

    ``catalog_url`` may hold a password: it is not shown, and no worker gets it. ``local_directory``: '' stands for
    ``work_directory``."""

    catalog_url: str = field(repr=False)
    storage_root: str
    pipelines_directory: str
    data: str
    docs_directory: str
    work_directory: str
    local_directory: str = ""

    def catalog(self) -> "Catalog":
        """The catalog. An empty database gets its tables; those of another statelib are left to
        :meth:`migrate_catalog`, because runs of that version may be under way.

        Raises InvalidRequestError (``catalog-not-migrated``), UnsupportedError (``catalog-schema-unknown``)."""
        catalog = catalog_at(self.catalog_url)
        catalog.create_if_empty()
        return catalog

    def migrate_catalog(self) -> None:
        """Bring the catalog to this version's schema; does nothing if it is there. Raises UnsupportedError."""
        catalog_at(self.catalog_url).migrate()

    def for_workers(self) -> "Deployment":
        """What Spark's executors get of it: all but the catalog, which only the driver talks to."""
        return replace(self, catalog_url="")

    def existing_catalog(self) -> "Catalog":
        """The catalog as it is, for those who only look: nothing is made or migrated. Raises InvalidRequestError
        (``no-catalog``) where a SQLite file is not there."""
        from statelib.catalog.engine import database_file

        file = database_file(self.catalog_url)
        if file is not None and not Path(file).is_file():
            raise InvalidRequestError(
                f"there is no catalog at {file}: no pipeline ever began a checkpoint with it",
                kind="no-catalog",
                hint="check STATELIB_CATALOG; a first run makes the catalog, and so does statelib catalog migrate",
            )
        return catalog_at(self.catalog_url)

    def scratch(self) -> str:
        """The work directory of whichever host this is asked on; made if it is not there.

        Raises InvalidRequestError (``no-scratch-directory``)."""
        try:
            os.makedirs(self.work_directory, exist_ok=True)
            crash_point("scratch: space made")
        except OSError as error:
            raise InvalidRequestError(
                f"scratch space {self.work_directory} cannot be made: {error.strerror}",
                kind="no-scratch-directory",
                hint="let STATELIB_WORK name a directory that every host of the pipeline may write to",
            ) from error
        return self.work_directory

    def storage(self, pipeline: Pipeline) -> CheckpointStorage:
        settings = StorageSettings(
            PipelineName(pipeline.name), pipeline.checkpoint.inline_threshold_bytes, self.work_directory
        )
        return registry.PLACES.storage(self.storage_root, settings)

    def local_states(self, pipeline: Pipeline) -> LocalStateStore:
        """The local copies of a pipeline's checkpoints on whichever host this is asked."""
        return LocalStateStore(self.local_directory or self.work_directory, self.root_uri(), pipeline.name)

    def worker_storage(self, pipeline: Pipeline) -> CheckpointStorageWorkerView:
        """What its workers write to: the same storage, merging small files where the pipeline says so."""
        merging = pipeline.checkpoint.file_merging
        storage = self.storage(pipeline)
        if not merging.enabled:
            return storage
        return storage.to_file_merging_storage(
            FileMergingSettings(merging.max_file_size_bytes, merging.max_space_amplification)
        )

    def remover(self) -> CheckpointRemover:
        """What deletes from that storage, and from wherever savepoints lie."""
        return PlacedRemover(self.root_uri(), registry.RETRIES)

    def root_uri(self) -> str:
        """The storage's root; the checkpoints of a pipeline lie in the directory of its name."""
        return registry.PLACES.kind(self.storage_root).normalised(self.storage_root)

    def pipelines(self) -> list[Pipeline]:
        """The valid pipelines; broken files are left out here and reported by ``pipelines validate``."""
        return load_pipelines(Path(self.pipelines_directory))[0]

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline by its name. Raises InvalidRequestError where its file does not load, NotFoundError
        (``no-pipeline``) where there is none."""
        pipelines, faults = load_pipelines(Path(self.pipelines_directory))
        found = {p.name: p for p in pipelines}
        if name not in found:
            for fault in faults:
                if Path(fault.path).stem == name:
                    raise InvalidRequestError(fault.message, kind=fault.kind, hint=fault.hint)
            known = ", ".join(sorted(found)) or "none"
            raise NotFoundError(
                f"pipeline {name!r} is not in {self.pipelines_directory}: known are {known}",
                kind="no-pipeline",
                hint="statelib pipelines validate shows files that do not load",
            )
        return found[name]


def storage_root(environ: Mapping[str, str] = os.environ) -> str | None:
    """Where the deployment keeps its checkpoints, for what else needs no deployment; None if that is not said."""
    return environ.get("STATELIB_STORAGE") or None


def deployment(environ: Mapping[str, str] = os.environ) -> Deployment:
    """The deployment that the environment describes.

    Raises InvalidRequestError (kind ``missing-setting``) naming each variable that is not set.
    """
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # before anything imports Great Expectations
    missing = [f"{name} ({meaning})" for name, meaning in VARIABLES.items() if not environ.get(name)]
    if missing:
        raise InvalidRequestError(
            f"not set in the environment: {'; '.join(missing)}",
            kind="missing-setting",
            hint="export them in the shell, or in the environment of Airflow's workers",
        )
    optional = (environ.get(name, "") for name in OPTIONAL)
    return Deployment(*(environ[name] for name in VARIABLES), *optional)


def begun_deployment() -> Deployment:
    """Return the deployment that the environment describes, whose catalog has to be there: for what begins no pipeline.

    Raises as :func:`deployment` and :meth:`Deployment.existing_catalog` do."""
    found = deployment()
    found.existing_catalog()
    return found


def telemetry(environ: Mapping[str, str] = os.environ) -> AbstractContextManager[Telemetry]:
    """Where the metrics of a process go that Airflow does not run; :func:`~statelib.telemetry.sending.sending`."""
    return sending(environ)


def log_settings(level: str = "WARNING", environ: Mapping[str, str] = os.environ) -> LogSettings:
    """What the environment says of log lines, ``level`` unless it says another.

    Raises InvalidRequestError (``bad-log-setting``)."""
    return LogSettings(
        format=environ.get("STATELIB_LOG_FORMAT") or "text",
        level=(environ.get("STATELIB_LOG_LEVEL") or level).upper(),
        secrets=secrets(environ),
    )
