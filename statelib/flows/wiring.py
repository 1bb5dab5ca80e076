"""The deployment, made of the environment. Concrete classes are chosen here; all other modules get them as
arguments."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from statelib.crash_points import crash_point
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.storage import registry
from statelib.storage.local.store import LocalStateStore
from statelib.storage.objects.clients import ALLOW_HTTP
from statelib.storage.ports.kind import CheckpointStorage, StorageSettings
from statelib.storage.ports.removal import CheckpointRemover
from statelib.storage.ports.views import CheckpointStorageWorkerView, FileMergingSettings
from statelib.telemetry.logs import LogSettings
from statelib.telemetry.metrics import Telemetry
from statelib.telemetry.sending import sending

if TYPE_CHECKING:
    from statelib.catalog.catalog import Catalog
    from statelib.savepoints.opened import Checkpoint
from statelib.telemetry.secrets import secrets

VARIABLES = {
    "STATELIB_CATALOG": "SQLAlchemy URL of the catalog, e.g. sqlite:////srv/statelib/catalog.db",
    "STATELIB_STORAGE": "directory, file:, s3:, gs:, az: or abfss: URI under which checkpoints are kept",
    "STATELIB_PIPELINES": "directory of the pipeline files",
    "STATELIB_DATA": "the value of {data} in the paths of sources and tables: a directory or a URI",
    "STATELIB_DOCS": "directory of the quality reports",
    "STATELIB_WORK": "scratch directory of Spark tasks",
}


OPTIONAL = {
    "STATELIB_LOCAL": "directory for local copies of state, on each host's own disk; default: below STATELIB_WORK"
}


LOGGING = {
    "STATELIB_LOG_FORMAT": "text or json: one object per line; in Airflow's tasks Airflow decides. Default: text",
    "STATELIB_LOG_LEVEL": "DEBUG, INFO, WARNING or ERROR. Default: INFO of Spark jobs, WARNING of the command line",
}


NETWORK = {
    ALLOW_HTTP: "true allows object storages to be reached by http:, which sends credentials and state unencrypted; "
    "executors need it too. Default: false, such an endpoint is refused (insecure-endpoint)"
}


def now_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000


@cache
def catalog_at(url: str) -> "Catalog":
    """Return the catalog at ``url``, one object per process for writers and readers. It connects to nothing yet, and
    caches nothing of a SQLite file, which may be replaced."""
    from statelib.catalog.catalog import Catalog  # here, so that Spark's workers start without SQLAlchemy

    return Catalog(url, now_ms)


@dataclass(frozen=True)
class Deployment:
    """The place where pipelines run: its catalog, its storage and its directories. Picklable.

    ``catalog_url`` may contain a password: ``repr`` leaves it out, and workers do not get it. ``local_directory``: ''
    means ``work_directory``."""

    catalog_url: str = field(repr=False)
    storage_root: str
    pipelines_directory: str
    data: str
    docs_directory: str
    work_directory: str
    local_directory: str = ""

    def catalog(self) -> "Catalog":
        """Return the catalog, and create its tables in an empty database. Tables of another version of statelib are not
        changed, because runs of that version may be under way: :meth:`migrate_catalog` does that.

        Raises InvalidRequestError (``catalog-not-migrated``), UnsupportedError (``catalog-schema-unknown``)."""
        catalog = catalog_at(self.catalog_url)
        catalog.create_if_empty()
        return catalog

    def migrate_catalog(self) -> None:
        """Change the catalog's tables to this version's schema, if they have another one. Raises UnsupportedError."""
        catalog_at(self.catalog_url).migrate()

    def for_workers(self) -> "Deployment":
        """Return the deployment without the catalog, for Spark's executors: only the driver uses the catalog."""
        return replace(self, catalog_url="")

    def has_catalog(self) -> bool:
        """Return whether the catalog was ever created. Nothing is created."""
        from statelib.catalog.engine import open_engine
        from statelib.catalog.migration import is_empty

        return self._missing_file() is None and not is_empty(open_engine(self.catalog_url))

    def _missing_file(self) -> str | None:
        """Return the path of the catalog's SQLite file if it does not exist, otherwise None."""
        from statelib.catalog.engine import database_file

        file = database_file(self.catalog_url)
        return file if file is not None and not Path(file).is_file() else None

    def existing_catalog(self) -> "Catalog":
        """Return the catalog for reading only: nothing is created or migrated. Raises InvalidRequestError
        (``no-catalog``) if its SQLite file does not exist."""
        file = self._missing_file()
        if file is not None:
            raise InvalidRequestError(
                f"there is no catalog at {file}: no pipeline ever began a checkpoint with it",
                kind="no-catalog",
                hint="check STATELIB_CATALOG; a first run makes the catalog, and so does statelib catalog migrate",
            )
        return catalog_at(self.catalog_url)

    def scratch(self) -> str:
        """Return the work directory on this host, and create it if it does not exist.

        Raises InvalidRequestError (``no-scratch-directory``)."""
        try:
            os.makedirs(self.work_directory, exist_ok=True)
            crash_point("scratch: space made")
        except OSError as error:
            raise InvalidRequestError(
                f"scratch space {self.work_directory} cannot be created: {error.strerror}",
                kind="no-scratch-directory",
                hint="let STATELIB_WORK name a directory that every host of the pipeline may write to",
            ) from error
        return self.work_directory

    def open(self, record: CheckpointRecord) -> "Checkpoint":
        """Open a checkpoint or savepoint that the catalog has a row of. Raises as
        :func:`~statelib.savepoints.opened.open_checkpoint`; a missing manifest is damage (``corrupt-metadata``), and so
        is another snapshot in the place of a completed one (``other-snapshot``)."""
        from statelib.savepoints.opened import open_checkpoint  # here, so that the command line starts without Arrow

        opened = open_checkpoint(record.directory, own=True, storage_root=self.storage_root)
        stored = opened.manifest.attempt if opened.manifest else None
        if record.state is CheckpointState.COMPLETED and record.attempt not in (None, stored):
            name = f"{record.pipeline}/{record.checkpoint_id}"
            raise CorruptStateError(
                f"{record.directory}: expected the snapshot {name} of attempt {record.attempt}, found another one, of "
                f"attempt {stored}",
                kind="other-snapshot",
                hint=f"put {name} back there, or restore the snapshot that is there now by this path",
            )
        return opened

    def open_at(self, path: str) -> "Checkpoint":
        """Open a snapshot by its path or URI, whether statelib or Flink wrote it. Raises as
        :func:`~statelib.savepoints.opened.open_checkpoint`."""
        from statelib.savepoints.opened import open_checkpoint

        return open_checkpoint(path, storage_root=self.storage_root)

    def storage(self, pipeline: Pipeline) -> CheckpointStorage:
        """Return the storage of a pipeline's checkpoints and savepoints."""
        settings = StorageSettings(pipeline.name, pipeline.checkpoint.inline_threshold_bytes, self.work_directory)
        return registry.PLACES.storage(self.storage_root, settings)

    def local_states(self, pipeline: Pipeline) -> LocalStateStore:
        """Return the store of the local copies of a pipeline's checkpoints on this host."""
        return LocalStateStore(self.local_directory or self.work_directory, self.root_uri(), pipeline.name)

    def worker_storage(self, pipeline: Pipeline) -> CheckpointStorageWorkerView:
        """Return the storage that the pipeline's workers write to. It merges small files if the pipeline file sets
        ``file_merging``."""
        merging = pipeline.checkpoint.file_merging
        storage = self.storage(pipeline)
        if not merging.enabled:
            return storage
        return storage.to_file_merging_storage(
            FileMergingSettings(merging.max_file_size_bytes, merging.max_space_amplification)
        )

    def remover(self) -> CheckpointRemover:
        """Return the remover, which deletes from this storage and from the directories of savepoints elsewhere."""
        return registry.PLACES.remover(self.root_uri())

    def root_uri(self) -> str:
        """Return the URI of the storage's root. The checkpoints of a pipeline are below ``<root>/<pipeline>``."""
        return registry.PLACES.kind(self.storage_root).normalised(self.storage_root)

    def pipelines(self) -> list[Pipeline]:
        """Return the valid pipelines. Files that do not load are left out; ``pipelines validate`` reports them. Of
        several files with one name, it is the first."""
        return load_pipelines(Path(self.pipelines_directory))[0]

    def pipeline(self, name: str) -> Pipeline:
        """Return a pipeline by its name. Raises InvalidRequestError if its file does not load, or if a second file has
        its name, such as an old copy: nobody knows which of them is meant. Raises NotFoundError (``no-pipeline``) if it
        has no file."""
        pipelines, faults = load_pipelines(Path(self.pipelines_directory), name)
        by_name: dict[str, Pipeline] = {p.name: p for p in pipelines}
        for fault in faults:
            if fault.may_be(name):
                raise fault.error()
        if name not in by_name:
            names = ", ".join(sorted(p.name for p in self.pipelines())) or "none"
            raise NotFoundError(
                f"pipeline {name!r} is not in {self.pipelines_directory}: known are {names}",
                kind="no-pipeline",
                hint="statelib pipelines validate shows files that do not load",
            )
        return by_name[name]


def source_variables() -> Mapping[str, str]:
    """Return the variables that the options of a source may name."""
    return os.environ


def storage_root(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the root of the checkpoint storage, for commands that need no other setting. None if it is not set.

    Raises InvalidRequestError (``bad-path``) for a relative path."""
    root = environ.get("STATELIB_STORAGE") or None
    if root is not None:
        _check_absolute("STATELIB_STORAGE", root)
    return root


def deployment(environ: Mapping[str, str] = os.environ) -> Deployment:
    """Return the deployment that the environment describes. Raises InvalidRequestError: ``missing-setting``, which
    names each variable that is not set; ``bad-path``."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # before anything imports Great Expectations
    _check_set(VARIABLES, environ)
    for name in ("STATELIB_STORAGE", "STATELIB_DATA"):
        _check_absolute(name, environ[name])
    optional = (environ.get(name, "") for name in OPTIONAL)
    return Deployment(*(environ[name] for name in VARIABLES), *optional)


def described(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables of the environment that describe the deployment, as far as they are set."""
    return {name: environ[name] for name in (*VARIABLES, *OPTIONAL) if name in environ}


def pipelines_directory(environ: Mapping[str, str] = os.environ) -> str:
    """Return the directory of the pipeline files, for commands that need no other setting. Raises InvalidRequestError
    (``missing-setting``) if it is not set."""
    _check_set(("STATELIB_PIPELINES",), environ)
    return environ["STATELIB_PIPELINES"]


def _check_set(names: Iterable[str], environ: Mapping[str, str]) -> None:
    missing = [f"{name} ({VARIABLES[name]})" for name in names if not environ.get(name)]
    if missing:
        raise InvalidRequestError(
            f"not set in the environment: {'; '.join(missing)}",
            kind="missing-setting",
            hint="export them in the shell, or in the environment of Airflow's workers",
        )


def _check_absolute(name: str, place: str) -> None:
    """Raise InvalidRequestError (``bad-path``) if a directory of the deployment is a relative path, which would be
    another directory in each working directory."""
    if not place.startswith("/") and ":" not in place.partition("/")[0]:
        raise InvalidRequestError(
            f"{name}: expected an absolute path or a URI such as s3://bucket/state, found {place!r}",
            kind="bad-path",
            hint=f"write {name}={os.path.abspath(place)}",
        )


def begun_deployment() -> Deployment:
    """Return the deployment that the environment describes, for commands that begin no pipeline: its catalog must
    exist. Raises as :func:`deployment` and :meth:`Deployment.existing_catalog`."""
    begun = deployment()
    begun.existing_catalog()
    return begun


@contextmanager
def planning_deployment() -> Iterator[Deployment]:
    """Yield the deployment that the environment describes, for making a plan that may never be carried out. If it has
    no catalog yet, an empty one in a temporary directory takes its place, so that nothing is left behind."""
    planned = deployment()
    if planned.has_catalog():
        yield planned
        return
    with TemporaryDirectory(prefix="statelib-plan-") as directory:
        yield replace(planned, catalog_url=f"sqlite:///{directory}/catalog.db")


def telemetry(environ: Mapping[str, str] = os.environ) -> AbstractContextManager[Telemetry]:
    """Return the receiver of metrics for a process that Airflow does not run; see
    :func:`~statelib.telemetry.sending.sending`."""
    return sending(environ)


def log_settings(level: str = "WARNING", environ: Mapping[str, str] = os.environ) -> LogSettings:
    """Return the settings of log lines from the environment. ``level``: the level if the environment sets none.

    Raises InvalidRequestError (``bad-log-setting``)."""
    return LogSettings(
        format=environ.get("STATELIB_LOG_FORMAT") or "text",
        level=(environ.get("STATELIB_LOG_LEVEL") or level).upper(),
        secrets=secrets(environ),
    )
