"""Campaigns against texts that people write: pipeline files, names, paths and URIs."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from statelib.definition.pipeline import load_pipeline
from statelib.errors import InvalidRequestError, StatelibError
from statelib.flows.views.inspection import parse_checkpoint
from statelib.model.ids import pipeline_name
from statelib.storage.objects.uris import object_location
from statelib.storage.registry import PLACES
from statelib.storage.uris import local_path, relative_parts
from tests.fuzz.campaign import Target
from tests.fuzz.samples import own_directory

PIPELINES = Path(__file__).parents[2] / "dags" / "pipelines"


def _pipelines() -> Target:
    path = own_directory() / "fuzzed.yaml"

    def read(_: str, data: bytes) -> None:
        path.write_bytes(data)
        try:
            load_pipeline(path)
        except StatelibError as error:  # There is one line per problem.
            raise InvalidRequestError(str(error).replace("\n", "; "), kind=error.kind) from error

    return Target({each.name: each.read_bytes() for each in PIPELINES.glob("*.yaml")}, read, whole=False)


def _names() -> Target:
    """Return the target of names and paths. A parser may accept a text that another refuses; none may fail in
    another way, or give a path with ``..``."""
    seeds = ("flights", "flights/17", "/srv/state/chk-1", "file:///srv/%2e%2e", "s3://bucket/state", "a/../b", "gs://b")

    def read(_: str, data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        for parse in (pipeline_name, parse_checkpoint, lambda t: PLACES.kind(t).normalised(t), object_location):
            with suppress(StatelibError):
                parse(text)
        for parts in (lambda t: local_path(t).split("/"), relative_parts):
            with suppress(StatelibError):
                assert ".." not in parts(text)

    return Target({seed: seed.encode() for seed in seeds}, read)


TEXTS: Mapping[str, Callable[[], Target]] = {"pipeline-files": _pipelines, "names": _names}
