"""One checkpoint taken apart, from its ``_metadata`` and the catalog alone: no data file is opened."""

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
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.storage.places import is_absolute
from statelib.storage.registry import PLACES

MAX_STATES, MAX_FILES, MAX_NUMBERS = 200, 1000, 500_000
"""What one answer holds at most; of numbers of key groups, all states together."""


@dataclass(frozen=True)
class StateFacts:
    """``digest_hex``: the sum of all entries' hashes, equal for equal content. ``entries_by_key_group``: from key
    group 0 on; None where the answer would be too large."""

    operator: str
    name: str
    kind: str
    type: str
    entries: int
    digest_hex: str
    entries_by_key_group: list[int] | None


@dataclass(frozen=True)
class SubtaskFacts:
    """``key_groups``: first and last; None without keyed state. ``bytes``: of all that its state refers to."""

    subtask: int
    key_groups: tuple[int, int] | None
    restored_from: str | None
    bytes: int


@dataclass(frozen=True)
class FileFacts:
    """``path`` as in ``_metadata``; ``scope``: ``exclusive`` in the checkpoint's own directory, else ``shared``."""

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
    name: str
    mode: str
    elements: int


@dataclass(frozen=True)
class Anatomy:
    """What ``_metadata`` tells; the first so many ``states`` and ``files`` of ``_total``."""

    max_parallelism: int
    states: tuple[StateFacts, ...]
    states_total: int
    subtasks: tuple[SubtaskFacts, ...]
    files: tuple[FileFacts, ...]
    files_total: int
    operator_state: tuple[OperatorStateFacts, ...]


@dataclass(frozen=True)
class Portrait:
    """All that is known of one checkpoint. ``anatomy`` None: ``problem`` says why it cannot be read."""

    entry: Entry
    lineage: tuple[Ancestor, ...]
    quality: tuple[QualityResult, ...]
    anatomy: Anatomy | None
    problem: str | None


def portrait(deployment: Deployment, pipeline: PipelineName, checkpoint_id: CheckpointId) -> Portrait:
    """What the catalog knows, and what lies on storage if that can be read. Raises NotFoundError (``no-checkpoint``)
    and as the catalog does; trouble with the storage is a ``problem`` and no error."""
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
    """The checkpoint with its manifest. Raises as :func:`open_checkpoint`; UnsupportedError (``no-manifest``) for
    what Flink wrote, ``deleted`` for what gc has removed."""
    name = f"{entry.pipeline}/{entry.checkpoint_id}"
    if entry.state == CheckpointState.DELETED:
        raise UnsupportedError(f"{name} was deleted: only what the catalog kept of it is left", kind="deleted")
    opened = open_checkpoint(entry.directory, storage_root=deployment.storage_root)
    if opened.manifest is None:
        raise UnsupportedError(
            f"{name} was written by Flink, which keeps no statistics",
            kind="no-manifest",
            hint=f"statelib inspect {entry.directory}",
        )
    return opened, opened.manifest


def statistics_by_state(manifest: CheckpointManifest) -> Iterable[tuple[StateDescriptor, StateStatistics]]:
    return zip(manifest.schema.states, manifest.statistics, strict=True)


def _anatomy(opened: Checkpoint, manifest: CheckpointManifest, files: list[FileFacts]) -> Anatomy:
    operator = opened.keyed_operator()
    shown = list(statistics_by_state(manifest))[:MAX_STATES]
    fits = manifest.schema.max_parallelism * len(shown) <= MAX_NUMBERS
    uid = opened.operator_name(operator)
    return Anatomy(
        max_parallelism=manifest.schema.max_parallelism,
        states=tuple(_state(uid, descriptor, found, fits) for descriptor, found in shown),
        states_total=len(manifest.schema.states),
        subtasks=tuple(_subtasks(operator, manifest)),
        files=tuple(files),
        files_total=len(manifest.files),
        operator_state=_operator_states(opened),
    )


def _state(operator: str, descriptor: StateDescriptor, found: StateStatistics, fits: bool) -> StateFacts:
    return StateFacts(
        operator,
        descriptor.name,
        descriptor.kind,
        state_type(descriptor),
        found.total_entries,
        f"{int(found.digests.sum()):016x}",
        [int(n) for n in found.entries.tolist()] if fits else None,
    )


def state_type(descriptor: StateDescriptor) -> str:
    """What one key has in the state."""
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


def _file(file: FileRecord, holders: Holders | None) -> FileFacts:
    return FileFacts(
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
    """Elements of all subtasks together; of broadcast state, which every subtask has, those of one."""
    elements: dict[tuple[str, int], int] = {}
    handles = (state.operator for operator in opened.operators for _, state in operator.subtasks)
    for name, mode, offsets in (part for handle in handles if handle for part in handle.states):
        before = elements.get((name, mode), 0)
        broadcast = mode == OperatorStateMode.BROADCAST
        elements[name, mode] = max(before, len(offsets)) if broadcast else before + len(offsets)
    return tuple(OperatorStateFacts(name, OperatorStateMode(mode).name, n) for (name, mode), n in elements.items())
