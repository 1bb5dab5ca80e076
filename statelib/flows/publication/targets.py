"""The choice of a target by the format and the place of a published table."""

from statelib.definition.pipeline import Pipeline
from statelib.definition.published_columns import column_sources
from statelib.extras import require
from statelib.flows.wiring import Deployment
from statelib.publication.delta_table import DeltaDirectory
from statelib.publication.iceberg.table import IcebergTable
from statelib.publication.parquet.bucket import BucketPlace
from statelib.publication.parquet.directory import DirectoryPlace
from statelib.publication.parquet.table import ParquetTable
from statelib.publication.target import PublishedTable, TableTarget
from statelib.storage.objects.clients import text_options
from statelib.storage.objects.uris import location_if_object
from statelib.storage.registry import PLACES, patience
from statelib.storage.uris import local_path


def open_target(deployment: Deployment, pipeline: Pipeline, name: str, attempt: str) -> TableTarget:
    """Return the target of one published table. ``attempt``: a text that no other publisher has.

    Raises UnsupportedError (``unknown-scheme``), NotFoundError (``missing-extra``)."""
    publication = pipeline.publish[name]
    target = publication.target.format(data=deployment.data)
    table = PublishedTable(
        target,
        pipeline.name,
        name,
        publication.mode == "changes",
        publication.retain,
        sources=column_sources(pipeline, publication),
        former=pipeline.renamed_from,
    )
    if publication.format == "iceberg":
        require("iceberg")
        return IcebergTable(table, attempt, deployment.work_directory)
    PLACES.kind(target)
    location = location_if_object(target)
    if publication.format == "delta":
        require("delta")
        directory = location.uri if location else local_path(target)
        options = text_options(patience()) if location else None
        return DeltaDirectory(table, directory, options, deployment.work_directory)
    if location is None:
        return ParquetTable(table, DirectoryPlace(table, local_path(target), attempt))
    require("objects")
    return ParquetTable(table, BucketPlace(table, attempt, patience(), deployment.work_directory))
