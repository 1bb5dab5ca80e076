"""Check whether the events of a data interval are complete, by ``ready`` of each source of the pipeline file."""

from collections.abc import Callable, Iterator

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.readiness import PartRule, ReadyRule, ready_rules
from statelib.errors import RetryableError
from statelib.flows.wiring import Deployment, now_ms
from statelib.model.checkpoint import DataInterval
from statelib.model.moments import moment_of
from statelib.model.path_patterns import directory_of_pattern, split_pattern
from statelib.storage.registry import PLACES
from statelib.storage.source_listing import SourceListing, look_at_source

Look = Callable[[str], SourceListing]
"""A function that lists the files under a path."""
WasUpdated = Callable[[str, int], bool]
"""A function that returns whether the asset of a URI was updated at a moment or later."""
_WORTH_NAMING = 5


def _look_now(path: str) -> SourceListing:
    """Return the present listing of a path. Raises as :func:`~statelib.storage.source_listing.look_at_source`."""
    return look_at_source(path, PLACES)


def missing(rule: ReadyRule, look: Look = _look_now, clock: Callable[[], int] = now_ms) -> list[str]:
    """Return one clause per part of a source that is missing, with the source's name if it is one of several; an empty
    list if the events are complete. An asset is not checked here, because only Airflow has its events."""
    return [named(rule, text) for part in rule.parts for text in _missing(rule, part, look, clock())]


def named(rule: ReadyRule, text: str) -> str:
    """Return a clause that begins with the name of its source, if the source has a name."""
    return f"{rule.source}: {text}" if rule.source else text


def check_ready(
    deployment: Deployment, pipeline: Pipeline, interval: DataInterval, was_updated: WasUpdated | None = None
) -> None:
    """Raise RetryableError (``source-not-ready``), which names what is missing, if the events are not complete.
    ``was_updated``: checks assets; without it, an asset counts as missing, because only Airflow has its events."""
    clauses: list[str] = []
    for rule in ready_rules(pipeline, deployment.data, interval):
        clauses += missing(rule)
        if rule.asset is None:
            continue
        if was_updated is None:
            text = f"only Airflow can check whether asset {rule.asset} was updated after the interval"
            clauses.append(named(rule, text))
        elif not was_updated(rule.asset, rule.end_ms):
            clauses.append(named(rule, not_updated(rule.asset, rule.end_ms)))
    if clauses:
        raise RetryableError(
            f"pipeline {pipeline.name}: the events of the interval are not complete: {summary(clauses)}",
            kind="source-not-ready",
            hint="run it when they are, or, if you know that they are, with statelib run --assume-ready; in a DAG of "
            "your own, put SourceReadyOperator before it",
        )


def not_updated(asset: str, since_ms: int) -> str:
    """Return the clause about an asset that was not updated."""
    return f"asset {asset} was not updated since {moment_of(since_ms).isoformat()}"


def summary(clauses: list[str]) -> str:
    """Return the first few clauses as one text, with the number of the others."""
    more = len(clauses) - _WORTH_NAMING
    return "; ".join([*clauses[:_WORTH_NAMING], *([f"{more} more"] if more > 0 else [])])


def _missing(rule: ReadyRule, part: PartRule, look: Look, now: int) -> Iterator[str]:
    listing = None if part.path is None else look(part.path)
    if listing is not None and not listing.exists and not rule.may_be_missing and not _has_no_match(part, look):
        yield f"{part.path} does not exist"
        return
    if part.marker is not None and not _is_moot(part, listing, look) and not look(part.marker).exists:
        yield f"{part.marker} does not exist"
    if part.next_path is not None and not look(part.next_path).exists:
        yield f"{part.next_path}, of the interval after it, does not exist"
    if listing is None:
        return
    since_ms = part.end_ms if listing.newest_ms is None else listing.newest_ms
    if now - since_ms < rule.min_age_ms:
        what = "ended" if listing.newest_ms is None else "changed"
        yield f"{part.path} {what} {(now - since_ms) // 1000} s ago, expected {rule.min_age_ms // 1000} s or more"


def _has_no_match(part: PartRule, look: Look) -> bool:
    """Return whether the path is a pattern, and its directory exists: its marker shows that no file is to come."""
    directory = directory_of_pattern(part.path or "")
    return directory is not None and part.marker is not None and look(directory).exists


def _is_moot(part: PartRule, listing: SourceListing | None, look: Look) -> bool:
    """Return whether the marker need not be checked, because its directory is missing and is allowed to be."""
    if listing is None or listing.exists or part.marker is None or part.path is None:
        return False
    directory, pattern = split_pattern(part.path)
    if not part.marker.startswith(f"{directory.rstrip('/')}/"):
        return False
    return not pattern or not look(directory.rstrip("/")).exists
