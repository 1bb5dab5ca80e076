"""Two checkpoints of a pipeline side by side, by the statistics of their manifests: no data file is opened.

Which keys differ is ``statelib checkpoints diff``'s to find; here it is which key groups have other content.
"""

from dataclasses import dataclass

import numpy as np

from statelib.catalog.views.browsing import Entry
from statelib.errors import StatelibError
from statelib.flows.views.anatomy import MAX_NUMBERS, MAX_STATES, opened_entry, statistics_by_state
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.state import StateStatistics
from statelib.storage.registry import PLACES


@dataclass(frozen=True)
class StateComparison:
    """``_entries`` None: that side does not have the state. ``changed``: numbers of the key groups whose content
    differs; it and their count are None where the two have different key groups."""

    name: str
    left_entries: int | None
    right_entries: int | None
    key_groups_changed: int | None
    changed: list[int] | None


@dataclass(frozen=True)
class FileComparison:
    """Files that both need, and that only one does."""

    common: int
    common_bytes: int
    only_left: int
    only_left_bytes: int
    only_right: int
    only_right_bytes: int


@dataclass(frozen=True)
class Comparison:
    """``states`` and ``files`` None: ``problem`` says which side cannot be read, and why."""

    left: Entry
    right: Entry
    states: tuple[StateComparison, ...] | None
    files: FileComparison | None
    command: str
    problem: str | None


def compare(deployment: Deployment, pipeline: PipelineName, left: CheckpointId, right: CheckpointId) -> Comparison:
    """Raises NotFoundError (``no-checkpoint``), and as the catalog does."""
    browsing = deployment.existing_catalog().browsing
    entries = browsing.entry(pipeline, left), browsing.entry(pipeline, right)
    command = f"statelib checkpoints diff {pipeline}/{left} {pipeline}/{right}"
    try:
        (_, before), (_, after) = (opened_entry(deployment, entry) for entry in entries)
    except StatelibError as error:
        return Comparison(*entries, None, None, command, str(error))
    files = _files(_sizes(entries[0], before), _sizes(entries[1], after))
    return Comparison(*entries, _states(before, after), files, command, None)


def _states(left: CheckpointManifest, right: CheckpointManifest) -> tuple[StateComparison, ...]:
    before = {descriptor.name: found for descriptor, found in statistics_by_state(left)}
    after = {descriptor.name: found for descriptor, found in statistics_by_state(right)}
    names = sorted({*before, *after})[:MAX_STATES]
    room = MAX_NUMBERS // max(len(names), 1)
    return tuple(_state(name, before.get(name), after.get(name), room) for name in names)


def _state(name: str, left: StateStatistics | None, right: StateStatistics | None, room: int) -> StateComparison:
    counts = (left.total_entries if left else None, right.total_entries if right else None)
    sides = [side for side in (left, right) if side is not None]
    if len({side.key_group_range for side in sides}) > 1:
        return StateComparison(name, counts[0], counts[1], None, None)
    if left is None or right is None:
        # A state that only one has is new or gone in every key group where it has entries.
        differs = np.any([side.entries != 0 for side in sides], axis=0)
    else:
        differs = (left.entries != right.entries) | (left.digests != right.digests)
    changed = [int(group) for group in np.flatnonzero(differs).tolist()]
    return StateComparison(name, counts[0], counts[1], len(changed), changed if len(changed) <= room else None)


def _sizes(entry: Entry, manifest: CheckpointManifest) -> dict[str, int]:
    return {PLACES.file_uri(entry.directory, file.path): file.size_bytes for file in manifest.files}


def _files(left: dict[str, int], right: dict[str, int]) -> FileComparison:
    common, before, after = left.keys() & right.keys(), left.keys() - right.keys(), right.keys() - left.keys()
    return FileComparison(
        len(common), sum(left[uri] for uri in common),
        len(before), sum(left[uri] for uri in before),
        len(after), sum(right[uri] for uri in after),
    )  # fmt: skip
