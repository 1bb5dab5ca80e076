"""Describe one checkpoint in detail, from its ``_metadata`` and the catalog alone: no data file is opened."""

from collections.abc import Iterable
from dataclasses import dataclass

from statelib.catalog.views.browsing import Ancestor, Entry, Holders
from statelib.errors import StatelibError, UnsupportedError
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import CheckpointManifest, FileRecord, OperatorState
from statelib.model.handles import stream_handles
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.operator_state import OperatorStateMode
from statelib.model.quality import QualityResult
from statelib.model.record import CheckpointState
from statelib.model.state import StateDescriptor, StateKind, StateStatistics
from statelib.savepoints.opened import Checkpoint
from statelib.storage.registry import PLACES
from statelib.storage.uris import is_absolute

MAX_STATES, MAX_FILES, MAX_NUMBERS = 200, 1000, 500_000
"""The maximum number of states, of files, and of counts per key group (all states together) in one answer."""


@dataclass(frozen=True)
class StateFacts:
    """A state of the checkpoint. ``digest_hex``: the sum of the hashes of all entries, equal for equal content. It and
    ``entries`` are None if open deltas are not merged with the state yet. ``entries_by_key_group``: from key group 0
    on; None as well, or if the answer would be too large."""

    operator: str
    name: str
    kind: str
    type: str
    entries: int | None
    digest_hex: str | None
    entries_by_key_group: list[int] | None


@dataclass(frozen=True)
class SubtaskFacts:
    """A subtask of the checkpoint. ``key_groups``: the first and the last; None without keyed state. ``bytes``: the
    size of all streams of its state."""

    subtask: int
    key_groups: tuple[int, int] | None
    restored_from: str | None
    bytes: int


@dataclass(frozen=True)
class CheckpointFile:
    """A file of the checkpoint. ``path``: as in ``_metadata``. ``scope``: ``exclusive`` if it is in the checkpoint's
    directory, else ``shared``."""

    path: str
    size_bytes: int
    crc32c: str
    key_groups: tuple[int, int]
    scope: str
    created_by: CheckpointId | None
    shared_with: tuple[CheckpointId, ...]
    shared_with_total: int


@dataclass(frozen=True)
class OperatorStateFacts:
    """An operator state of the checkpoint."""

    name: str
    mode: str
    elements: int


@dataclass(frozen=True)
class SideDataFacts:
    """The side data of one name. ``pieces``: how many there are; a piece that several subtasks have is counted once.
    ``size_bytes``: the size of all pieces."""

    name: str
    pieces: int
    size_bytes: int


@dataclass(frozen=True)
class Anatomy:
    """The content of ``_metadata``. ``states`` and ``files``: the first ones, of ``states_total`` and
    ``files_total``."""

    max_parallelism: int
    states: tuple[StateFacts, ...]
    states_total: int
    subtasks: tuple[SubtaskFacts, ...]
    files: tuple[CheckpointFile, ...]
    files_total: int
    operator_state: tuple[OperatorStateFacts, ...]
    side_data: tuple[SideDataFacts, ...]


@dataclass(frozen=True)
class Portrait:
    """The description of one checkpoint. ``anatomy``: None if ``_metadata`` cannot be read; ``problem`` then says
    why."""

    entry: Entry
    lineage: tuple[Ancestor, ...]
    quality: tuple[QualityResult, ...]
    anatomy: Anatomy | None
    problem: str | None


def portrait(deployment: Deployment, pipeline: PipelineName, checkpoint_id: CheckpointId) -> Portrait:
    """Return the description of a checkpoint. Raises NotFoundError (``no-checkpoint``) and as the catalog. An error of
    the storage is returned as ``problem``, not raised."""
    browsing = deployment.existing_catalog().browsing
    entry = browsing.entry(pipeline, checkpoint_id)
    lineage, quality = browsing.lineage(pipeline, checkpoint_id), browsing.quality(pipeline, checkpoint_id)
    try:
        opened, manifest = opened_entry(deployment, entry)
        files = manifest.files[:MAX_FILES]
        uris = [PLACES.file_uri(opened.directory, file.path) for file in files]
        holders = browsing.holders(entry, uris)
        facts = [_file(file, holders.get(uri)) for file, uri in zip(files, uris, strict=True)]
        return Portrait(entry, lineage, quality, _anatomy(opened, manifest, facts), None)
    except StatelibError as error:
        return Portrait(entry, lineage, quality, None, str(error))


def opened_entry(deployment: Deployment, entry: Entry) -> tuple[Checkpoint, CheckpointManifest]:
    """Open the checkpoint, and return it with its manifest. Raises as :meth:`Deployment.open_at`; UnsupportedError:
    ``no-manifest`` if Flink wrote it, ``deleted`` if gc has deleted it."""
    name = f"{entry.pipeline}/{entry.checkpoint_id}"
    if entry.state == CheckpointState.DELETED:
        raise UnsupportedError(f"{name} was deleted: only its row in the catalog is left", kind="deleted")
    opened = deployment.open_at(entry.directory)
    if opened.manifest is None:
        raise UnsupportedError(
            f"{name} was written by Flink, which keeps no statistics",
            kind="no-manifest",
            hint=f"statelib inspect {entry.directory}",
        )
    return opened, opened.manifest


def _anatomy(opened: Checkpoint, manifest: CheckpointManifest, files: list[CheckpointFile]) -> Anatomy:
    operator = opened.keyed_operator()
    shown = list(manifest.statistics_by_state())[:MAX_STATES]
    fits = manifest.schema.max_parallelism * len(shown) <= MAX_NUMBERS
    is_open = bool(manifest.deltas)
    uid = opened.operator_name(operator)
    return Anatomy(
        max_parallelism=manifest.schema.max_parallelism,
        states=tuple(
            _state(uid, descriptor, None if is_open else statistics, fits) for descriptor, statistics in shown
        ),
        states_total=len(manifest.schema.states),
        subtasks=tuple(_subtasks(operator, manifest)),
        files=tuple(files),
        files_total=len(manifest.files),
        operator_state=_operator_states(opened),
        side_data=_side_data(manifest),
    )


def _state(operator: str, descriptor: StateDescriptor, statistics: StateStatistics | None, fits: bool) -> StateFacts:
    named = operator, descriptor.name, descriptor.kind, state_type(descriptor)
    if statistics is None:
        return StateFacts(*named, None, None, None)
    return StateFacts(
        *named,
        statistics.total_entries,
        f"{int(statistics.digests.sum()):016x}",
        [int(n) for n in statistics.entries.tolist()] if fits else None,
    )


def state_type(descriptor: StateDescriptor) -> str:
    """Return the type of what one key has in the state, as text."""
    if descriptor.kind is StateKind.MAP:
        return f"map<{descriptor.user_key_type}, {descriptor.value_type}>"
    if descriptor.kind is StateKind.LIST:
        return f"list<{descriptor.value_type}>"
    return str(descriptor.value_type)


def _subtasks(operator: OperatorState, manifest: CheckpointManifest) -> Iterable[SubtaskFacts]:
    for number, state in operator.subtasks:
        groups = state.keyed.key_group_range if state.keyed else None
        streams = [s for handle in (state.keyed, state.operator) if handle for s in stream_handles(handle)]
        restored = manifest.restored_from[number] if number < len(manifest.restored_from) else None
        span = (groups.start, groups.end) if groups else None
        yield SubtaskFacts(number, span, restored, sum(stream.size_bytes for stream in streams))


def _file(file: FileRecord, holders: Holders | None) -> CheckpointFile:
    return CheckpointFile(
        file.path,
        file.size_bytes,
        f"{file.crc32c:08x}",
        (file.key_group_range.start, file.key_group_range.end),
        "shared" if is_absolute(file.path) else "exclusive",
        holders.created_by if holders else None,
        holders.others if holders else (),
        holders.total if holders else 0,
    )


def _operator_states(opened: Checkpoint) -> tuple[OperatorStateFacts, ...]:
    """Return the operator states with their elements, summed over the subtasks. Broadcast state is in every subtask and
    counted once."""
    elements: dict[tuple[str, int], int] = {}
    handles = (state.operator for operator in opened.operators for _, state in operator.subtasks)
    for name, mode, offsets in (part for handle in handles if handle for part in handle.states):
        before = elements.get((name, mode), 0)
        broadcast = mode == OperatorStateMode.BROADCAST
        elements[name, mode] = max(before, len(offsets)) if broadcast else before + len(offsets)
    return tuple(OperatorStateFacts(name, OperatorStateMode(mode).name, n) for (name, mode), n in elements.items())


def _side_data(manifest: CheckpointManifest) -> tuple[SideDataFacts, ...]:
    names = sorted({record.name for record in manifest.side_data})
    pieces = {name: {record.handle for record in manifest.side_data if record.name == name} for name in names}
    return tuple(SideDataFacts(name, len(each), sum(one.size_bytes for one in each)) for name, each in pieces.items())
