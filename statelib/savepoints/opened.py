"""Checkpoints and savepoints opened for reading: metadata, manifest, and state as Arrow columns."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from statelib.errors import InvalidRequestError, NotFoundError, StatelibError, UnsupportedError
from statelib.formats.keyed.raw_timers import RawTimers, is_empty, read_raw_timers
from statelib.formats.manifest.trailer import SIGNATURE, read_checkpoint_file
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.checkpoint import (
    CheckpointManifest,
    CheckpointMetadata,
    Delta,
    OperatorState,
    SourcePosition,
)
from statelib.model.handles import (
    ByteStreamStateHandle,
    KeyedStateHandle,
    KeyGroupsStateHandle,
    StreamStateHandle,
    checksum_key,
    stream_handles,
)
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind, StateStatistics
from statelib.model.types import StateType
from statelib.restore.changelog.change_log import with_whole_files
from statelib.restore.entries import WINDOW_BYTES, read_windows, windows_of
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.recognised import recognised
from statelib.restore.union_schema import union_schema
from statelib.savepoints.own_directories import own_roots
from statelib.serializers.entries.keys import decode_keys
from statelib.serializers.entries.rows import NO_ROWS, StateRows
from statelib.serializers.entries.values import decode_values
from statelib.storage.local.scratch import scratch_directory
from statelib.storage.ports.views import StateReader
from statelib.storage.registry import PLACES
from statelib.storage.relocation import Relocation, relocation_of
from statelib.storage.uris import AllowedRoot


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint or savepoint that :func:`open_checkpoint` has opened.

    ``manifest``: None for a snapshot that Flink wrote. ``selected``: the id of the operator whose keyed state is read;
    None stands for the only operator with keyed state. ``allowed_root``: the directories besides ``directory`` in which
    the snapshot's files may lie, for checkpoints that share files. ``key_type``: the type of keys whose type is not
    recorded in the snapshot. ``storage_root``: the URI of the deployment's storage; None if the snapshot was opened
    without it. ``window_bytes``: the stored bytes that are read at a time; at least one key group is read at a time.
    ``settled``: whether state is read without its open deltas."""

    directory: str
    metadata: CheckpointMetadata
    manifest: CheckpointManifest | None
    metadata_bytes: bytes = field(repr=False)
    selected: bytes | None = None
    allowed_root: AllowedRoot = None
    key_type: StateType | None = None
    storage_root: str | None = None
    window_bytes: int = WINDOW_BYTES
    settled: bool = False

    @property
    def metadata_size_bytes(self) -> int:
        return len(self.metadata_bytes)

    @property
    def written_by(self) -> str:
        """The program that wrote the snapshot: ``flink`` or ``statelib``; ``statelib`` also for savepoints without a
        manifest that it wrote for Flink jobs."""
        return "statelib" if self.manifest or self.metadata_bytes.endswith(SIGNATURE) else "flink"

    @property
    def operators(self) -> tuple[OperatorState, ...]:
        return self.metadata.operators

    def keyed_operator(self) -> OperatorState:
        """Return the selected operator, or the only operator with keyed state. If no operator has keyed state, return
        the selected or the first one. Raises InvalidRequestError (``ambiguous-operator``) if several operators have
        keyed state and none is selected, NotFoundError (``no-operator``) if the snapshot has no operators."""
        keyed = [o for o in self.operators if _holds_keyed_state(o) and self.selected in (None, o.operator_id)]
        if len(keyed) > 1:
            names = ", ".join(map(self.operator_name, keyed))
            raise InvalidRequestError(
                f"{self.directory}: several operators hold keyed state: {names}",
                kind="ambiguous-operator",
                hint="choose one with --operator",
            )
        if keyed:
            return keyed[0]
        if not self.operators:
            raise NotFoundError(f"{self.directory}: no operator with keyed state", kind="no-operator")
        return next((o for o in self.operators if o.operator_id == self.selected), self.operators[0])

    def operator_name(self, operator: OperatorState) -> str:
        """Return the uid of an operator, or its id in hex if neither the metadata nor the manifest contains the uid.
        Metadata before version 5 contains no uids."""
        if operator.uid:
            return operator.uid
        names = (self.manifest.uid, self.manifest.pipeline) if self.manifest else ()
        for name in filter(None, names):
            if operator_id(name) == operator.operator_id:
                return name
        # A pipeline may set the id of its operator independently of the uid, so that it is not the hash of the uid.
        if self.manifest and self.manifest.uid and len(self.operators) == 1:
            return self.manifest.uid
        return operator.operator_id.hex()

    def each_operator(self) -> tuple["Checkpoint", ...]:
        """Return one copy of this checkpoint per operator with keyed state, with that operator selected."""
        return tuple(replace(self, selected=o.operator_id) for o in self.operators if _holds_keyed_state(o))

    def select(self, name: str) -> "Checkpoint":
        """Return a copy with the operator selected whose uid or hex id is ``name``. Raises NotFoundError
        (``no-operator``) if no operator with keyed state has that name."""
        parts = self.each_operator()
        hashed = operator_id(name)  # metadata before version 5 has no uids, but an id is the hash of one
        for part in parts:
            operator = part.keyed_operator()
            if operator.operator_id == hashed or name in (self.operator_name(operator), operator.operator_id.hex()):
                return part
        names = ", ".join(self.operator_name(part.keyed_operator()) for part in parts) or "none"
        raise NotFoundError(
            f"{self.directory}: no operator {name!r} with keyed state: there are {names}", kind="no-operator"
        )

    def handles(self) -> tuple[KeyedStateHandle, ...]:
        return tuple(self.keyed_handles.values())

    @cached_property
    def keyed_handles(self) -> dict[int, KeyedStateHandle]:
        """The handles of the selected operator's keyed state, by subtask. In a snapshot that Flink wrote, the type of a
        handle is determined from the bytes of its stream."""
        handles = {index: state.keyed for index, state in self.keyed_operator().subtasks if state.keyed is not None}
        if self.manifest:
            return handles
        reader = self.reader()
        return {index: with_whole_files(recognised(reader, handle)) for index, handle in handles.items()}

    def streams(self) -> tuple[StreamStateHandle, ...]:
        """Return the streams of all state of all operators, including state that only Flink can read."""
        return (*self.state_streams(keyed=True), *self.state_streams(keyed=False))

    def state_streams(self, *, keyed: bool) -> tuple[StreamStateHandle, ...]:
        """Return the distinct streams of managed keyed state; without ``keyed``, those of all other state."""
        streams: list[StreamStateHandle] = []
        for operator in self.operators:
            for _, state in operator.subtasks:
                if keyed and state.keyed is not None:
                    streams += stream_handles(state.keyed if self.manifest else with_whole_files(state.keyed))
                if not keyed:
                    others = (state.operator, state.raw_keyed, state.raw_operator)
                    streams += [stream for handle in others if handle for stream in stream_handles(handle)]
                    streams += state.channel_streams
            if not keyed and operator.coordinator is not None:
                streams.append(operator.coordinator)
        return tuple(dict.fromkeys(streams))

    def checksums(self) -> dict[str, tuple[int, int]] | None:
        """Return (size in bytes, crc32c) of files and their segments, by checksum key; None without a manifest."""
        if self.manifest is None:
            return None
        return {key: checksum for file in self.manifest.files for key, checksum in file.checksums().items()}

    def identities(self) -> dict[str, tuple[int, int, int | None]]:
        """Return (size in bytes, crc32c, xxh3 or None if it was not recorded) of each file and each segment of a file,
        by its checksum key. Two files whose values are equal have the same content."""
        files = self.manifest.files if self.manifest else ()
        return {key: identity for file in files for key, identity in file.identities().items()}

    def reader(self) -> StateReader:
        return PLACES.kind(self.directory).reader(self.directory, self.checksums(), self.allowed_root)

    def schema(self) -> KeyedStateSchema:
        """Return the schema of the selected operator's keyed state. It is the schema in the manifest, with field names;
        without a manifest, it is the union of the states in the headers of all handles. Timers in raw keyed state
        follow as further states. Raises NotFoundError (``no-operator``) if there is no keyed state."""
        managed, raw = self.managed_schema, self.raw_timers
        if managed is None and not raw:
            raise NotFoundError(f"{self.directory}: no operator with keyed state", kind="no-operator")
        managed = managed or KeyedStateSchema(raw[0].key_type, self.keyed_operator().max_parallelism, ())
        states = {state.name: state for state in (*managed.states, *(part.descriptor for part in raw))}
        return replace(managed, states=tuple(states.values()))

    @cached_property
    def managed_schema(self) -> KeyedStateSchema | None:
        """The schema without timers in raw keyed state; None if there is no managed keyed state."""
        if self.manifest:
            return self.manifest.schema
        if not self.keyed_handles:
            return None
        operator = self.keyed_operator()
        what = f"{self.directory}: keyed state of operator {self.operator_name(operator)}"
        return union_schema(self.reader(), self.keyed_handles, operator.max_parallelism, what, self.key_type)

    @cached_property
    def raw_timers(self) -> tuple[RawTimers, ...]:
        """The timers that Flink stored in raw keyed state, handle by handle. Raises UnsupportedError
        (``raw-keyed-state``) if raw keyed state holds anything else."""
        operator = self.keyed_operator()
        timers: list[RawTimers] = []
        for subtask, state in operator.subtasks:
            handle = state.raw_keyed
            if not isinstance(handle, KeyGroupsStateHandle) or is_empty(handle):
                continue
            what = f"{self.directory}: raw keyed state of {self.operator_name(operator)}, subtask {subtask}"
            timers += read_raw_timers(self.reader().read(handle.stream), handle, operator.max_parallelism, what)
        return tuple(timers)

    def sources(self) -> tuple[RestoreSource, ...]:
        """Return one restore source per handle, with the statistics that its entries must have. Raises UnsupportedError
        (``raw-keyed-state``) if there are timers in raw keyed state: a restore would lose them."""
        if any(len(part.rows) for part in self.raw_timers):
            raise UnsupportedError(
                f"{self.directory}: timers in raw keyed state, which can be exported but not restored or compared",
                kind="raw-keyed-state",
                hint="take a savepoint with Flink: there they are state like any other",
            )
        return self.managed_sources()

    def managed_sources(self) -> tuple[RestoreSource, ...]:
        """Return the restore sources without the timers in raw keyed state."""
        schema, reader, checksums = self.managed_schema, self.reader(), self.checksums() or {}
        if schema is None:
            return ()
        sources = (
            RestoreSource(
                handle,
                reader,
                schema,
                self.statistics(handle.key_group_range),
                _is_checksummed(handle, checksums),
                partial=self.manifest is None,
                deltas=self._deltas(handle.key_group_range),
                settled=self._settled_statistics(handle.key_group_range),
            )
            for handle in self.handles()
        )
        return tuple(source.without_deltas() if self.settled else source for source in sources)

    def _deltas(self, key_groups: KeyGroupRange) -> tuple[Delta, ...]:
        """Return the open deltas of the handle of these key groups."""
        deltas = self.manifest.deltas if self.manifest else ()
        return tuple(delta for delta in deltas if delta.key_group_range == key_groups)

    def position(self) -> SourcePosition | None:
        """Return the position in the source up to which events are applied; None without a manifest."""
        return self.manifest.position if self.manifest else None

    def statistics(self, key_groups: KeyGroupRange) -> tuple[StateStatistics, ...] | None:
        """Return the recorded statistics of a range of key groups, per state; None without a manifest, and while it has
        open deltas."""
        open_deltas = self.manifest.deltas if self.manifest else ()
        is_open = any(len(delta.key_group_range.intersection(key_groups)) for delta in open_deltas)
        return None if is_open else self._settled_statistics(key_groups)

    def _settled_statistics(self, key_groups: KeyGroupRange) -> tuple[StateStatistics, ...] | None:
        """Return the recorded statistics of a range of key groups without its open deltas; None without a manifest."""
        if self.manifest is None:
            return None
        cut = slice(key_groups.start, key_groups.end + 1)
        return tuple(StateStatistics(key_groups, s.entries[cut], s.digests[cut]) for s in self.manifest.statistics)

    def rows(
        self, scratch: str | None = None, key_groups: Sequence[KeyGroupRange] | None = None, only: int | None = None
    ) -> Iterator[tuple[int, StateRows]]:
        """Yield (index of the state in the schema, serialized entries) in batches, read from storage and verified.
        ``scratch``: the directory for temporary copies. ``key_groups``: as for :func:`windows_of`. ``only``: the
        index of the only state that is needed; others may come, too. Raises what the formats and readers raise."""
        with located(self.directory), scratch_directory(scratch, "read") as directory:
            for number, source in enumerate(self.managed_sources()):
                windows = windows_of(source.handle, self.window_bytes, key_groups)
                yield from read_windows(source, windows, str(Path(directory) / str(number)), only)
            if self.raw_timers:
                index_of = {state.name: index for index, state in enumerate(self.schema().states)}
                yield from ((index_of[part.descriptor.name], part.rows) for part in self.raw_timers if len(part.rows))

    def entries(
        self, state: str | None = None, scratch: str | None = None
    ) -> Iterator[tuple[StateDescriptor, StateRows]]:
        """Yield (descriptor of the state, serialized entries) in batches: of one state, or of all if ``state`` is None.
        Raises as :meth:`rows`, and InvalidRequestError (``unknown-state``)."""
        schema = self.schema()
        only = None if state is None else schema.states.index(schema.state(state))
        for index, rows in self.rows(scratch, only=only):
            if len(rows) and only in (None, index):
                yield schema.states[index], rows

    def tables(self, state: str | None = None, scratch: str | None = None) -> Iterator[tuple[str, pa.Table]]:
        """Yield (name of the state, table with the columns of :func:`to_table`). Raises as :meth:`entries`."""
        schema = self.schema()
        for descriptor, rows in self.entries(state, scratch):
            with located(f"{self.directory}: state {descriptor.name}"):
                table = to_table(schema, descriptor, rows)
            yield descriptor.name, table

    def to_arrow(self, state: str, scratch: str | None = None) -> pa.Table:
        """Return all entries of one state, with the columns of :func:`to_table`. Raises as :meth:`entries`."""
        schema = self.schema()
        empty = to_table(schema, schema.state(state), NO_ROWS)
        return pa.concat_tables([empty, *(table for _, table in self.tables(state, scratch))])


@contextmanager
def located(where: str) -> Iterator[None]:
    """Raise errors of the block with ``where`` in front of their message, unless the message contains the directory
    already. ``where``: a directory, optionally followed by ``: `` and more text."""
    try:
        yield
    except StatelibError as error:
        directory = where.partition(": ")[0]
        place = PLACES.kind(directory).shown(directory)
        if place in error.message:
            raise
        raise type(error)(f"{where}: {error.message}", kind=error.kind, hint=error.hint) from error


def _is_checksummed(handle: KeyedStateHandle, checksums: Mapping[str, tuple[int, int]]) -> bool:
    """Return whether every file of the handle has a checksum. Streams inside ``_metadata`` need none of their own."""
    return all(isinstance(s, ByteStreamStateHandle) or checksum_key(s) in checksums for s in stream_handles(handle))


def _holds_keyed_state(operator: OperatorState) -> bool:
    return any(s.keyed or (s.raw_keyed and not _is_empty(s.raw_keyed)) for _, s in operator.subtasks)


def _is_empty(raw: KeyedStateHandle) -> bool:
    return isinstance(raw, KeyGroupsStateHandle) and is_empty(raw)


def to_table(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> pa.Table:
    """Return serialized entries as a table with the columns ``key_group, key[, namespace][, user_key], value``; timers
    with the columns ``key_group, key[, namespace], timestamp``."""
    columns = decode_keys(schema, descriptor, rows.keys).columns()
    values = decode_values(descriptor, rows.values)
    return pa.table(columns if descriptor.kind is StateKind.TIMERS else {**columns, "value": values})


def open_checkpoint(
    path: str,
    *,
    own: bool = False,
    storage_root: str | None = None,
    relocate: Mapping[str, str] | None = None,
    key_type: StateType | None = None,
) -> Checkpoint:
    """Open a checkpoint or savepoint. ``path``: its directory, or the ``_metadata`` file in it.

    ``own``: whether statelib wrote it; a missing manifest is then damage. ``storage_root``: the URI of the deployment's
    storage. A checkpoint in this storage may share files with other checkpoints of its pipeline; the files of any other
    snapshot must be in its directory. ``relocate``: for a snapshot that was moved, the old prefix of the paths in
    ``_metadata`` -> the new prefix; files may then lie below the new prefixes too. ``key_type``: the type of the keys
    of a change log, in which it is not recorded.

    Raises NotFoundError (``no-metadata``), CorruptStateError (``corrupt-metadata``), InvalidRequestError
    (``bad-relocation``).
    """
    relocation = relocation_at(path, relocate)
    kind = PLACES.kind(path)
    directory = kind.normalised(path.removesuffix("/_metadata"))
    data = kind.read_published(directory)
    metadata, manifest = read_checkpoint_file(data, f"{kind.shown(directory)}/_metadata", expect_manifest=own)
    roots = (*own_roots(directory, storage_root, manifest), *relocation.roots)
    metadata, manifest = relocation.metadata(metadata), relocation.manifest(manifest)
    root = PLACES.kind(storage_root).normalised(storage_root) if storage_root is not None else None
    return Checkpoint(
        directory, metadata, manifest, data, allowed_root=roots or None, key_type=key_type, storage_root=root
    )


def unpublished(
    directory: str, metadata: CheckpointMetadata, manifest: CheckpointManifest, storage_root: str
) -> Checkpoint:
    """Return a checkpoint whose files are on storage, but whose ``_metadata`` is not published yet."""
    roots = own_roots(PLACES.kind(directory).normalised(directory), storage_root, manifest) or None
    return Checkpoint(directory, metadata, manifest, b"", allowed_root=roots, storage_root=storage_root)


def relocation_at(path: str, relocate: Mapping[str, str] | None) -> Relocation:
    """Return the relocation of the files of a snapshot at ``path``. ``relocate``: as for :func:`open_checkpoint`.
    Raises InvalidRequestError (``bad-relocation``)."""
    relocation = relocation_of(relocate)
    for root in relocation.roots:
        if PLACES.kind(root) is not PLACES.kind(path):
            raise InvalidRequestError(
                f"{path} is relocated to {root}, in a storage of another kind: expected all of it in one",
                kind="bad-relocation",
                hint="copy both to the same storage",
            )
    return relocation
