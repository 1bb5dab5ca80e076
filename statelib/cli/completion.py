"""Suggestions of the shell for a half-typed word. ``statelib --install-completion`` turns them on.

A suggestion never fails: without a deployment or a catalog there are no suggestions.
"""

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
    """Return ``<pipeline>/<id>`` of completed snapshots, newest first; directories if the word begins like a path."""
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
    """Return the names of pipelines that have a file, or rows in the catalog."""
    names: set[str] = set()
    for read_names in (_names_in_catalog, _names_of_files):
        with suppress(StatelibError):
            names |= read_names()
    return sorted(name for name in names if name.startswith(incomplete))


def _names_in_catalog() -> set[str]:
    return {str(name) for name in begun_deployment().catalog().pipelines()}


def _names_of_files() -> set[str]:
    return {pipeline.name for pipeline in deployment().pipelines()}


def checkpoints(incomplete: str) -> list[str]:
    """Return ``<pipeline>/<id>`` of all checkpoints, also of those that did not complete, newest first."""
    return _ids(incomplete, lambda _record: True)


def savepoints(incomplete: str) -> list[str]:
    """Return ``<pipeline>/<id>`` of completed savepoints, newest first."""
    completed = CheckpointState.COMPLETED
    return _ids(incomplete, lambda record: record.kind is SnapshotKind.SAVEPOINT and record.state is completed)


def ids_of_pipeline(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return ids of completed snapshots of the pipeline that the command line names already, newest first; directories
    if the word begins like a path."""
    if incomplete.startswith(("/", ".", "~")):
        return _directories(incomplete)
    prefix = f"{ctx.params.get('pipeline', '')}/"
    return [name.removeprefix(prefix) for name in snapshots(prefix + incomplete)]


def _ids(incomplete: str, is_offered: Callable[[CheckpointRecord], bool]) -> list[str]:
    try:
        records = [record for record in begun_deployment().catalog().list() if is_offered(record)]
    except StatelibError:
        return []
    names = (f"{record.pipeline}/{record.checkpoint_id}" for record in records)
    return [name for name in names if name.startswith(incomplete)]


def _directories(incomplete: str) -> list[str]:
    """Return the directories that continue the word. A slash is added unless the directory is a snapshot."""
    written, slash, name = incomplete.rpartition("/")
    parent = Path(f"{written}{slash}" or ".").expanduser()
    try:
        paths = sorted(path for path in parent.iterdir() if path.name.startswith(name) and path.is_dir())
        return [f"{written}{slash}{path.name}{'' if (path / '_metadata').is_file() else '/'}" for path in paths]
    except OSError:
        return []
