"""Show all pipelines with their pipeline files and their rows in the catalog, also if one of the two is missing."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from statelib.catalog.views.browsing import PipelineSummary
from statelib.catalog.views.storage_use import StorageSample, Usage
from statelib.definition.pipeline import Pipeline, load_pipelines, pipeline_files
from statelib.errors import NotFoundError
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName

Stamp = tuple[tuple[str, int, int], ...]
"""Name, time of the last change and size of each pipeline file."""


@dataclass(frozen=True)
class PipelineView:
    """One pipeline. ``definition``: None if its file does not load or does not exist; ``error`` then says so.
    ``error`` also names a damaged row of the catalog. ``summary``: None if the pipeline never began a checkpoint."""

    name: PipelineName
    definition: Pipeline | None
    error: str | None
    summary: PipelineSummary | None


@dataclass(frozen=True)
class _Files:
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def names(deployment: Deployment) -> tuple[PipelineName, ...]:
    """Return the names of the pipelines that have a file, whether it loads or not, and of those in the catalog."""
    files = _files(deployment)
    every = {*files.pipelines, *files.errors, *deployment.existing_catalog().pipelines()}
    return tuple(PipelineName(name) for name in sorted(every))


def overview(deployment: Deployment, chosen: Collection[PipelineName]) -> tuple[PipelineView, ...]:
    """Return the chosen pipelines, in their order. The number of queries does not depend on their number."""
    files = _files(deployment)
    summaries = deployment.existing_catalog().browsing.summaries(chosen)
    return tuple(_view(files, name, summaries.get(name)) for name in chosen)


def storage_now(deployment: Deployment, chosen: Collection[PipelineName]) -> dict[PipelineName, Usage]:
    """Return the present storage use of the chosen pipelines."""
    return deployment.existing_catalog().browsing.storage.now(chosen)


def storage_samples(deployment: Deployment, pipeline: PipelineName) -> tuple[StorageSample, ...]:
    """Return the samples of a pipeline's storage use over time, the oldest first."""
    return deployment.existing_catalog().browsing.storage.samples(pipeline)


def check_known(deployment: Deployment, pipeline: PipelineName) -> None:
    """Raise NotFoundError (``no-pipeline``) if the pipeline has neither a file nor a row in the catalog."""
    if pipeline not in names(deployment):
        raise NotFoundError(f"there is no pipeline {pipeline}", kind="no-pipeline")


def _view(files: _Files, name: PipelineName, summary: PipelineSummary | None) -> PipelineView:
    definition = files.pipelines.get(name)
    gone = None if definition else "there is no pipeline file of this name"
    problem = summary.problem if summary else ""
    return PipelineView(name, definition, problem or files.errors.get(name, gone), summary)


def _files(deployment: Deployment) -> _Files:
    directory = Path(deployment.pipelines_directory)
    return _loaded(str(directory), _stamp(directory) if directory.is_dir() else ())


def _stamp(directory: Path) -> Stamp:
    """Return a value that changes whenever a pipeline file does, so that files are parsed again only then."""
    return tuple((path.name, *_time_and_size(path)) for path in pipeline_files(directory))


def _time_and_size(path: Path) -> tuple[int, int]:
    """Return the modification time in ns since the epoch, and the size in bytes. A link to no file, and a file that was
    just removed, have neither: both are 0."""
    try:
        stat = path.stat()
    except OSError:
        return 0, 0
    return stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=4)
def _loaded(directory: str, _stamp: Stamp) -> _Files:
    pipelines, broken = load_pipelines(directory)
    errors = {Path(each.path).stem: "; ".join(filter(None, (each.message, each.hint))) for each in broken}
    return _Files({pipeline.name: pipeline for pipeline in pipelines}, errors)
