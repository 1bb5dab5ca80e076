"""What a shell offers behind a half-written word; ``statelib --install-completion`` sets it up. Never an error."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import typer

from statelib.errors import StatelibError
from statelib.flows.views.inspection import completed
from statelib.flows.wiring import begun_deployment, deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.record import CheckpointRecord, CheckpointState


def snapshots(incomplete: str) -> list[str]:
    """``<pipeline>/<id>`` of the completed ones, newest first; directories where the word begins like a path."""
    if incomplete.startswith(("/", ".", "~")):
        return _directories(incomplete)
    try:
        records = completed(begun_deployment(), None)
    except StatelibError:
        return []
    ordered = sorted(records, key=lambda r: (r.pipeline, -r.checkpoint_id))
    names = (f"{record.pipeline}/{record.checkpoint_id}" for record in ordered)
    return [name for name in names if name.startswith(incomplete)]


def pipelines(incomplete: str) -> list[str]:
    """Names of pipelines: those with a file, and those that the catalog knows."""
    names: set[str] = set()
    for known in (_of_catalog, _of_files):
        with suppress(StatelibError):
            names |= known()
    return sorted(name for name in names if name.startswith(incomplete))


def _of_catalog() -> set[str]:
    return {str(name) for name in begun_deployment().catalog().pipelines()}


def _of_files() -> set[str]:
    return {pipeline.name for pipeline in deployment().pipelines()}


def checkpoints(incomplete: str) -> list[str]:
    """``<pipeline>/<id>`` of all there are, also of those that did not complete; newest first."""
    return _ids(incomplete, lambda _record: True)


def savepoints(incomplete: str) -> list[str]:
    """``<pipeline>/<id>`` of completed savepoints, newest first."""
    completed = CheckpointState.COMPLETED
    return _ids(incomplete, lambda record: record.kind is SnapshotKind.SAVEPOINT and record.state is completed)


def of_pipeline(ctx: typer.Context, incomplete: str) -> list[str]:
    """Ids of the completed checkpoints of the pipeline that the command names before, newest first; or directories."""
    if incomplete.startswith(("/", ".", "~")):
        return _directories(incomplete)
    prefix = f"{ctx.params.get('pipeline', '')}/"
    return [name.removeprefix(prefix) for name in snapshots(prefix + incomplete)]


def _ids(incomplete: str, wanted: Callable[[CheckpointRecord], bool]) -> list[str]:
    try:
        records = [record for record in begun_deployment().catalog().list() if wanted(record)]
    except StatelibError:
        return []
    names = (f"{record.pipeline}/{record.checkpoint_id}" for record in records)
    return [name for name in names if name.startswith(incomplete)]


def _directories(incomplete: str) -> list[str]:
    """As they are written, those of snapshots without a slash behind."""
    written, slash, name = incomplete.rpartition("/")
    parent = Path(f"{written}{slash}" or ".").expanduser()
    try:
        found = sorted(path for path in parent.iterdir() if path.name.startswith(name) and path.is_dir())
        return [f"{written}{slash}{path.name}{'' if (path / '_metadata').is_file() else '/'}" for path in found]
    except OSError:
        return []
