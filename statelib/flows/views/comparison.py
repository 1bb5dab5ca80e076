"""Compare two checkpoints of a pipeline by the statistics in their manifests: no data file is opened.

The result shows which key groups have other content. ``statelib checkpoints diff`` finds the keys that differ.
"""

from dataclasses import dataclass

import numpy as np

from statelib.catalog.views.browsing import Entry
from statelib.errors import StatelibError
from statelib.flows.views.anatomy import MAX_NUMBERS, MAX_STATES, opened_entry
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.state import StateStatistics
from statelib.storage.registry import PLACES


@dataclass(frozen=True)
class StateComparison:
    """The comparison of one state. ``left_entries``, ``right_entries``: None if that side does not have the state.
    ``changed``: the numbers of the key groups whose content differs. ``key_groups_changed``: their count. Both are None
    if the two sides have different key groups."""

    name: str
    left_entries: int | None
    right_entries: int | None
    key_groups_changed: int | None
    changed: list[int] | None


@dataclass(frozen=True)
class FileComparison:
    """The numbers of files, and their bytes, that both checkpoints need or only one needs."""

    common: int
    common_bytes: int
    only_left: int
    only_left_bytes: int
    only_right: int
    only_right_bytes: int


@dataclass(frozen=True)
class CheckpointComparison:
    """The comparison of two checkpoints. ``states`` and ``files``: None if a side cannot be read; ``problem`` then says
    which and why. ``command``: the command that compares them key by key."""

    left: Entry
    right: Entry
    states: tuple[StateComparison, ...] | None
    files: FileComparison | None
    command: str
    problem: str | None


def compare(
    deployment: Deployment, pipeline: PipelineName, left: CheckpointId, right: CheckpointId
) -> CheckpointComparison:
    """Return the comparison of two checkpoints. Raises NotFoundError (``no-checkpoint``), and as the catalog."""
    browsing = deployment.existing_catalog().browsing
    entries = browsing.entry(pipeline, left), browsing.entry(pipeline, right)
    command = f"statelib checkpoints diff {pipeline}/{left} {pipeline}/{right}"
    try:
        (_, before), (_, after) = (opened_entry(deployment, entry) for entry in entries)
    except StatelibError as error:
        return CheckpointComparison(*entries, None, None, command, str(error))
    files = _files(_sizes(entries[0], before), _sizes(entries[1], after))
    if before.deltas or after.deltas:
        problem = "open deltas are not merged with the state yet, so that its digests are not known"
        return CheckpointComparison(*entries, None, files, command, problem)
    return CheckpointComparison(*entries, _states(before, after), files, command, None)


def _states(left: CheckpointManifest, right: CheckpointManifest) -> tuple[StateComparison, ...]:
    before = {descriptor.name: statistics for descriptor, statistics in left.statistics_by_state()}
    after = {descriptor.name: statistics for descriptor, statistics in right.statistics_by_state()}
    names = sorted({*before, *after})[:MAX_STATES]
    limit = MAX_NUMBERS // max(len(names), 1)
    return tuple(_state(name, before.get(name), after.get(name), limit) for name in names)


def _state(name: str, left: StateStatistics | None, right: StateStatistics | None, limit: int) -> StateComparison:
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
    return StateComparison(name, counts[0], counts[1], len(changed), changed if len(changed) <= limit else None)


def _sizes(entry: Entry, manifest: CheckpointManifest) -> dict[str, int]:
    return {PLACES.file_uri(entry.directory, file.path): file.size_bytes for file in manifest.files}


def _files(left: dict[str, int], right: dict[str, int]) -> FileComparison:
    common, before, after = left.keys() & right.keys(), left.keys() - right.keys(), right.keys() - left.keys()
    return FileComparison(
        len(common), sum(left[uri] for uri in common),
        len(before), sum(left[uri] for uri in before),
        len(after), sum(right[uri] for uri in after),
    )  # fmt: skip
