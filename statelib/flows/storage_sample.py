"""Samples of the storage in use: noted after a story has done its work, which they never undo."""

import logging

from statelib.catalog.catalog import Catalog
from statelib.errors import StatelibError
from statelib.model.ids import PipelineName

log = logging.getLogger(__name__)


def note_storage_use(catalog: Catalog, pipeline: PipelineName) -> None:
    """Note what the pipeline's files amount to now, for the curve over time. Where that cannot be written, warn: the
    curve lacks a point until the next checkpoint or gc, which counts everything anew."""
    try:
        catalog.browsing.storage.sample(pipeline)
    except StatelibError as error:
        log.warning("%s: the storage in use could not be noted, the curve lacks this point: %s", pipeline, error)
