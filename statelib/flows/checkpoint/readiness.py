"""Whether the events of a data interval have landed completely, as far as the pipeline file says how that is seen."""

from collections.abc import Callable, Iterator

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.readiness import PartRule, ReadyRule, ready_rule
from statelib.errors import RetryableError
from statelib.flows.wiring import Deployment, now_ms
from statelib.model.checkpoint import DataInterval
from statelib.storage.registry import patience
from statelib.storage.source_listing import SourceListing, look_at_source

Look = Callable[[str], SourceListing]
_WORTH_NAMING = 5


def _look_now(path: str) -> SourceListing:
    """What lies under a path at this moment. Raises what
    :func:`~statelib.storage.source_listing.look_at_source` raises."""
    return look_at_source(path, patience())


def missing(rule: ReadyRule, look: Look = _look_now, clock: Callable[[], int] = now_ms) -> list[str]:
    """Return what is not there yet, each as a clause; nothing where the events are complete. An asset is left out:
    only Airflow knows of it."""
    return [text for part in rule.parts for text in _missing(rule, part, look, clock())]


def check_ready(deployment: Deployment, pipeline: Pipeline, interval: DataInterval) -> None:
    """Raises RetryableError (``source-not-ready``) naming what is missing."""
    rule = ready_rule(pipeline, deployment.data, interval)
    if rule is None:
        return
    found = missing(rule)
    if rule.asset is not None:
        found.append(f"whether asset {rule.asset} was updated after the interval, only Airflow knows")
    if found:
        raise RetryableError(
            f"pipeline {pipeline.name}: the events of the interval are not complete: {summary(found)}",
            kind="source-not-ready",
            hint="run it when they are, or, if you know that they are, with statelib run --assume-ready; in a DAG of "
            "your own let SourceReadyOperator wait before",
        )


def summary(found: list[str]) -> str:
    """The first few of the things that are missing, and how many more there are."""
    more = len(found) - _WORTH_NAMING
    return "; ".join([*found[:_WORTH_NAMING], *([f"{more} more"] if more > 0 else [])])


def _missing(rule: ReadyRule, part: PartRule, look: Look, now: int) -> Iterator[str]:
    listing = look(part.path)
    if not listing.exists and not rule.may_be_missing:
        yield f"{part.path} is not there"
        return
    if part.marker is not None and not _is_moot(part, listing) and not look(part.marker).exists:
        yield f"{part.marker} is not there"
    if part.next_path is not None and not look(part.next_path).exists:
        yield f"{part.next_path}, of the interval after it, is not there"
    since_ms = part.end_ms if listing.newest_ms is None else listing.newest_ms
    if now - since_ms < rule.min_age_ms:
        what = "ended" if listing.newest_ms is None else "changed"
        yield f"{part.path} {what} {(now - since_ms) // 1000} s ago, expected {rule.min_age_ms // 1000} s or more"


def _is_moot(part: PartRule, listing: SourceListing) -> bool:
    """Whether the marker would lie in a directory that may be missing, and is."""
    return not listing.exists and part.marker is not None and part.marker.startswith(f"{part.path.rstrip('/')}/")
