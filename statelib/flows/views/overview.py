"""All pipelines at a glance: what their files say, what the catalog says, and which of the two is missing."""

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from statelib.catalog.views.browsing import Standing
from statelib.catalog.views.storage_use import Sample, Usage
from statelib.definition.pipeline import Pipeline, load_pipelines
from statelib.errors import NotFoundError
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName

Stamp = tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class View:
    """One pipeline. ``definition`` None: its file does not load, or is gone, and ``error`` says so; it also names a
    damaged row of the catalog. ``standing`` None: it never began a checkpoint."""

    name: PipelineName
    definition: Pipeline | None
    error: str | None
    standing: Standing | None


@dataclass(frozen=True)
class _Files:
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def names(deployment: Deployment) -> tuple[PipelineName, ...]:
    """Of the pipelines that have a file, loading or not, and of those that the catalog knows."""
    files = _files(deployment)
    known = {*files.pipelines, *files.errors, *deployment.existing_catalog().pipelines()}
    return tuple(PipelineName(name) for name in sorted(known))


def overview(deployment: Deployment, chosen: Collection[PipelineName]) -> tuple[View, ...]:
    """The chosen pipelines, in their order; asks the catalog a fixed number of questions."""
    files = _files(deployment)
    standings = deployment.existing_catalog().browsing.standings(chosen)
    return tuple(_view(files, name, standings.get(name)) for name in chosen)


def storage_now(deployment: Deployment, chosen: Collection[PipelineName]) -> dict[PipelineName, Usage]:
    """What the chosen pipelines use of the storage."""
    return deployment.existing_catalog().browsing.storage.now(chosen)


def storage_samples(deployment: Deployment, pipeline: PipelineName) -> tuple[Sample, ...]:
    """What a pipeline used over time, oldest first."""
    return deployment.existing_catalog().browsing.storage.samples(pipeline)


def check_known(deployment: Deployment, pipeline: PipelineName) -> None:
    """Raises NotFoundError (``no-pipeline``) where neither a file nor the catalog has it."""
    if pipeline not in names(deployment):
        raise NotFoundError(f"there is no pipeline {pipeline}", kind="no-pipeline")


def _view(files: _Files, name: PipelineName, standing: Standing | None) -> View:
    definition = files.pipelines.get(name)
    gone = None if definition else "there is no pipeline file of that name any more"
    problem = standing.problem if standing else ""
    return View(name, definition, problem or files.errors.get(name, gone), standing)


def _files(deployment: Deployment) -> _Files:
    directory = Path(deployment.pipelines_directory)
    return _loaded(str(directory), _stamp(directory) if directory.is_dir() else ())


def _stamp(directory: Path) -> Stamp:
    """Changes whenever a file does, so that files are parsed again only then."""
    found = [(path.name, path.stat()) for path in directory.iterdir() if path.suffix in (".yaml", ".yml")]
    return tuple(sorted((name, stat.st_mtime_ns, stat.st_size) for name, stat in found))


@lru_cache(maxsize=4)
def _loaded(directory: str, _stamp: Stamp) -> _Files:
    pipelines, broken = load_pipelines(directory)
    errors = {Path(each.path).stem: "; ".join(filter(None, (each.message, each.hint))) for each in broken}
    return _Files({pipeline.name: pipeline for pipeline in pipelines}, errors)
