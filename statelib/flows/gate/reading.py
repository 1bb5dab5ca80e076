"""The part of a snapshot that the gate reads: what is new, and a rotating part of what earlier checkpoints have proved.

Source: docs/spec/protocol.md#what-the-gate-proves.
"""

from collections.abc import Collection
from dataclasses import dataclass

from statelib.definition.parts.quality import Rotation
from statelib.definition.pipeline import Pipeline
from statelib.model.checkpoint import FileRecord
from statelib.model.handles import ByteStreamStateHandle, KeyedStateHandle, StreamStateHandle, stream_handles
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord
from statelib.restore.plan import RestoreSource
from statelib.restore.stored.new_parts import merged_key_groups
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.stored_content import are_keys_countable
from statelib.wire.checksum import crc32c


@dataclass(frozen=True)
class Turn:
    """The turn of one run. ``number``: the number of the run, counted from 0. ``of``: the number of runs in which all
    files are read again. ``halvings``: how often the part of the key groups that such a run would read is halved."""

    number: int
    of: int
    halvings: int = 0

    def has_file(self, path: str) -> bool:
        """Return whether a known file is read in this turn. The name of the file decides, so that its turn stays the
        same when other files come and go."""
        return crc32c(path.rpartition("/")[2].encode()) % self.of == self.number % self.of

    def key_groups(self, max_parallelism: int) -> KeyGroupRange:
        """Return the key groups whose entries are read in this turn, which may be none. They are neighbours, so that
        they are in few handles and tables.

        A turn with more halvings has a part of the key groups that a turn of the same number with fewer has. So all are
        read in ``of << halvings`` runs in a row, even if some of these runs have fewer halvings."""
        rounds, first = divmod(self.number, self.of)
        for bit in range(self.halvings):
            first = 2 * first + (rounds >> bit & 1)
        start, stop = (number * max_parallelism // (self.of << self.halvings) for number in (first, first + 1))
        return KeyGroupRange(start, stop - 1)


@dataclass(frozen=True)
class Reading:
    """The part of a snapshot that is read. ``files``: the files that are read to their last byte. ``known``: the paths
    of the files that a registered checkpoint has proved. ``key_groups``: the ranges whose entries are read and counted,
    each within one handle; None for all. ``merged``: the key groups that may have lost entries without a trace in a new
    file, as of :func:`merged_key_groups`."""

    files: Collection[FileRecord]
    known: frozenset[str] = frozenset()
    key_groups: tuple[KeyGroupRange, ...] | None = None
    merged: frozenset[int] = frozenset()

    def is_known(self, stream: StreamStateHandle) -> bool:
        """Return whether a registered checkpoint has proved the stream. Bytes inside ``_metadata`` are always new."""
        return not isinstance(stream, ByteStreamStateHandle) and stream.path in self.known

    @property
    def size_bytes(self) -> int:
        """The size of the files that are read. The entries of known files are not counted."""
        return sum(file.size_bytes for file in self.files)

    def reads_a_part(self, source: RestoreSource) -> bool:
        """Return whether only some or none of the key groups of a handle are read."""
        return self.key_groups is not None and source.handle.key_group_range not in self.key_groups


def turn_of(rotation: Rotation, number: int, *, entries: int = 0, changes: int = 0) -> Turn:
    """Return the turn of a checkpoint. ``number``: it grows by one from run to run. ``entries``: those of the state.
    ``changes``: the number of events that were applied. The turn has at most that number of entries, or those of the
    setting if they are more, on the mean of the turns."""
    most = max(rotation.entries, changes) * rotation.rotate
    return Turn(number, rotation.rotate, (-(-entries // most) - 1).bit_length() if entries > most else 0)


def number_of_run(rotation: Rotation, checkpoints: int, restores: int) -> int:
    """Return the number of a run. ``checkpoints``: the number of checkpoints in its history. ``restores``: the number
    of the pipeline's restores before it.

    It grows by one from run to run without a restore between them, and if one checkpoint is restored again and again.
    With a restore before each run, it would grow by two, so that half of the turns would never come. Therefore it goes
    on by one more with every ``rotate`` restores."""
    return checkpoints + restores + restores // rotation.rotate


def reading_of(
    pipeline: Pipeline,
    opened: Checkpoint,
    base: Checkpoint | None,
    *,
    record: CheckpointRecord,
    checkpoints: int,
) -> Reading:
    """Return the reading of a checkpoint. ``base``: the base if the gate has proved it, else None. ``checkpoints``: the
    number of checkpoints in the history before it. If open deltas of the base were merged with the state, everything is
    read."""
    rotation, manifest = pipeline.checks.read_back, opened.manifest
    if base is None or manifest is None or not isinstance(rotation, Rotation) or has_merged(opened, base):
        return _read_everything(opened)
    entries = sum(statistics.total_entries for statistics in manifest.statistics)
    number = number_of_run(rotation, checkpoints, record.generation)
    turn = turn_of(rotation, number, entries=entries, changes=manifest.events.applied)
    return read_what_is_new(opened, base, turn)


def has_merged(opened: Checkpoint, base: Checkpoint) -> bool:
    """Return whether open deltas of the base are merged with the state of the snapshot."""
    before, now = (
        {(delta.checkpoint_id, str(delta.key_group_range)) for delta in each.manifest.deltas}
        if each.manifest
        else set()
        for each in (base, opened)
    )
    return not before <= now


def _read_everything(opened: Checkpoint) -> Reading:
    """Return the reading of a snapshot of which nothing is proved."""
    return Reading(opened.manifest.files if opened.manifest else ())


def read_what_is_new(opened: Checkpoint, proved: Checkpoint, turn: Turn) -> Reading:
    """Return the reading of a snapshot whose base ``proved`` was registered by the gate.

    A file is known if the base has it too, with the same size and checksums. A handle without known files is read
    whole; of the others, the key groups of the turn are read. Everything is read if the keys have never been
    counted, because the gate's count begins the series."""
    manifest, before = opened.manifest, proved.identities()
    if manifest is None or (manifest.keys is None and not manifest.deltas and are_keys_countable(manifest.schema)):
        return _read_everything(opened)
    known_paths = frozenset(file.path for file in manifest.files if file.identities().items() <= before.items())
    files = [file for file in manifest.files if file.path not in known_paths or turn.has_file(file.path)]
    in_turn = turn.key_groups(manifest.schema.max_parallelism)
    parts = (_part(handle, known_paths, in_turn) for handle in opened.handles())
    merged = merged_key_groups(proved.handles(), opened.handles())
    return Reading(files, known_paths, tuple(part for part in parts if len(part)), frozenset(merged))


def _part(handle: KeyedStateHandle, known_paths: frozenset[str], in_turn: KeyGroupRange) -> KeyGroupRange:
    paths = {stream.path for stream in stream_handles(handle) if not isinstance(stream, ByteStreamStateHandle)}
    own = handle.key_group_range
    return own.intersection(in_turn) if paths & known_paths else own
