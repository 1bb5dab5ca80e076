"""Where concrete classes are named and the environment is read: everything else gets them as arguments."""

import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from statelib.catalog.catalog import Catalog
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.errors import InvalidRequestError, NotFoundError, UnsupportedError
from statelib.model.ids import AttemptId, PipelineName
from statelib.storage.places import CheckpointStorage, FileSystemKind, Places, S3Kind, StorageSettings
from statelib.storage.removal import CheckpointRemover, FileSystemRemover
from statelib.storage.retries import Retries

VARIABLES = {
    "STATELIB_CATALOG": "SQLAlchemy URL of the catalog, e.g. sqlite:////srv/statelib/catalog.db",
    "STATELIB_STORAGE": "directory, file: URI or s3://bucket/prefix under which checkpoints are kept",
    "STATELIB_PIPELINES": "directory of the pipeline files",
    "STATELIB_DATA": "what {data} stands for in a pipeline's source path",
    "STATELIB_DOCS": "directory of the quality reports",
    "STATELIB_WORK": "scratch directory of Spark tasks",
}


RETRIES = Retries((0.1, 0.3, 1.0, 3.0, 9.0), time.sleep)
"""How long a storage that is in trouble is asked again."""

_FILES = FileSystemKind()
PLACES = Places({"": _FILES, "file": _FILES, "s3": S3Kind(RETRIES)})


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_attempt() -> AttemptId:
    return AttemptId(uuid.uuid4().hex)


@dataclass(frozen=True)
class Deployment:
    """One place where pipelines run: its catalog, its storage, its directories. Picklable."""

    catalog_url: str
    storage_root: str
    pipelines_directory: str
    data: str
    docs_directory: str
    work_directory: str

    def catalog(self) -> Catalog:
        """The catalog, brought to the present schema if it is new or older."""
        catalog = Catalog(self.catalog_url, now_ms)
        catalog.migrate()
        return catalog

    def storage(self, pipeline: Pipeline) -> CheckpointStorage:
        settings = StorageSettings(
            PipelineName(pipeline.name), pipeline.checkpoint.inline_threshold_bytes, self.work_directory
        )
        return PLACES.storage(self.storage_root, settings)

    def remover(self) -> CheckpointRemover:
        """What deletes from that storage. Raises UnsupportedError (``no-cleanup``) where nothing does yet."""
        if not self.root_uri().startswith("file:"):
            raise UnsupportedError(
                f"storage {self.root_uri()}: retention, gc and the orphan sweep work on file systems only",
                kind="no-cleanup",
                hint="keep every checkpoint, or keep them on a mounted file system",
            )
        return FileSystemRemover()

    def root_uri(self) -> str:
        """The storage's root; the checkpoints of a pipeline lie in the directory of its name."""
        return PLACES.kind(self.storage_root).normalised(self.storage_root)

    def pipelines(self) -> list[Pipeline]:
        """The valid pipelines; broken files are left out here and reported by ``pipelines validate``."""
        return load_pipelines(Path(self.pipelines_directory))[0]

    def pipeline(self, name: str) -> Pipeline:
        found = {p.name: p for p in self.pipelines()}
        if name not in found:
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
    return Deployment(*(environ[name] for name in VARIABLES))
