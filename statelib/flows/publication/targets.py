"""The choice of a target by the format of a published table."""

from statelib.definition.pipeline import Pipeline
from statelib.errors import UnsupportedError
from statelib.extras import require
from statelib.flows.wiring import Deployment
from statelib.publication.delta_table import DeltaDirectory
from statelib.publication.parquet_directory import ParquetDirectory
from statelib.publication.target import PublishedTable, TableTarget
from statelib.storage.uris import local_path


def open_target(deployment: Deployment, pipeline: Pipeline, name: str, attempt: str) -> TableTarget:
    """Return the target of one published table. ``attempt``: a text that no other publisher has.

    Raises UnsupportedError (``unknown-scheme``), NotFoundError (``missing-extra``)."""
    publication = pipeline.publish[name]
    place = publication.target.format(data=deployment.data)
    table = PublishedTable(place, pipeline.name, name, publication.mode == "changes", publication.retain)
    try:
        directory = local_path(place)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{place}: a table of format {publication.format} is published to a file system only",
            kind=error.kind,
            hint=f"let publish.{name}.target name a directory on a file system",
        ) from error
    if publication.format == "parquet":
        return ParquetDirectory(table, directory, attempt)
    require(publication.format)
    return DeltaDirectory(table, directory, deployment.work_directory)
