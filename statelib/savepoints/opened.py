"""A checkpoint opened for reading: its metadata, its manifest, and its state as Arrow columns."""

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
from statelib.model.checkpoint import CheckpointManifest, CheckpointMetadata, OperatorState, Origin, SourcePosition
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
from statelib.restore.entries import WINDOW_BYTES, EntryReader, windows_of
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.recognised import recognised
from statelib.restore.union_schema import union_schema
from statelib.serializers.keys import decode_keys
from statelib.serializers.rows import NO_ROWS, StateRows
from statelib.serializers.values import decode_values
from statelib.storage.local.scratch import scratch_directory
from statelib.storage.names import CHECKPOINT_PREFIX, SAVEPOINTS_DIRECTORY, savepoint_directory
from statelib.storage.registry import PLACES
from statelib.storage.relocation import Relocation, relocation_of
from statelib.storage.uris import AllowedRoot
from statelib.storage.views import StateReader


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`open_checkpoint` gives. ``manifest`` is None for a snapshot of Flink's own.
    ``selected``: the id of the operator to look at, None = the only one with keyed state.
    ``allowed_root``: where its files may lie besides ``directory``, for checkpoints that share them. ``key_type``: of
    keys whose type the snapshot itself does not say. ``storage_root``: the URI of the deployment's storage, None where
    it was opened without one. ``window_bytes``: stored bytes whose key groups are read one after the other."""

    directory: str
    metadata: CheckpointMetadata
    manifest: CheckpointManifest | None
    metadata_bytes: bytes = field(repr=False)
    selected: bytes | None = None
    allowed_root: AllowedRoot = None
    key_type: StateType | None = None
    storage_root: str | None = None
    window_bytes: int = WINDOW_BYTES

    @property
    def metadata_size_bytes(self) -> int:
        return len(self.metadata_bytes)

    @property
    def written_by(self) -> str:
        """``statelib``, also for what it wrote for Flink, or ``flink``."""
        return "statelib" if self.manifest or self.metadata_bytes.endswith(SIGNATURE) else "flink"

    @property
    def operators(self) -> tuple[OperatorState, ...]:
        return self.metadata.operators

    def keyed_operator(self) -> OperatorState:
        """The operator to look at: InvalidRequestError (``ambiguous-operator``) where several hold keyed
        state and none is selected."""
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
        """The uid where it is known (metadata before version 5 has none, but our own manifest tells), else the id
        in hex."""
        if operator.uid:
            return operator.uid
        told = (self.manifest.uid, self.manifest.pipeline) if self.manifest else ()
        for name in filter(None, told):
            if operator_id(name) == operator.operator_id:
                return name
        # The id of the one operator that the manifest tells of may be set apart from its uid.
        if self.manifest and self.manifest.uid and len(self.operators) == 1:
            return self.manifest.uid
        return operator.operator_id.hex()

    def each_operator(self) -> tuple["Checkpoint", ...]:
        """This checkpoint once for each operator with keyed state, with that operator selected."""
        return tuple(replace(self, selected=o.operator_id) for o in self.operators if _holds_keyed_state(o))

    def select(self, name: str) -> "Checkpoint":
        """With the operator of that uid or hex id; NotFoundError (``no-operator``) naming those there are."""
        parts = self.each_operator()
        hashed = operator_id(name)  # metadata before version 5 has no uids, but an id is the hash of one
        for part in parts:
            operator = part.keyed_operator()
            if operator.operator_id == hashed or name in (self.operator_name(operator), operator.operator_id.hex()):
                return part
        known = ", ".join(self.operator_name(part.keyed_operator()) for part in parts) or "none"
        raise NotFoundError(
            f"{self.directory}: no operator {name!r} with keyed state: there are {known}", kind="no-operator"
        )

    def handles(self) -> tuple[KeyedStateHandle, ...]:
        return tuple(self.keyed_handles.values())

    @cached_property
    def keyed_handles(self) -> dict[int, KeyedStateHandle]:
        """The handles of the selected operator's keyed state by subtask; those of Flink's own as their bytes show
        them to be."""
        held = {index: state.keyed for index, state in self.keyed_operator().subtasks if state.keyed is not None}
        if self.manifest:
            return held
        reader = self.reader()
        return {index: with_whole_files(recognised(reader, handle)) for index, handle in held.items()}

    def streams(self) -> tuple[StreamStateHandle, ...]:
        """All that the state of all operators lies in: also state that only Flink can read."""
        return (*self.state_streams(keyed=True), *self.state_streams(keyed=False))

    def state_streams(self, *, keyed: bool) -> tuple[StreamStateHandle, ...]:
        """The streams of managed keyed state, or those of everything else."""
        found: list[StreamStateHandle] = []
        for operator in self.operators:
            for _, state in operator.subtasks:
                if keyed and state.keyed is not None:
                    found += stream_handles(state.keyed if self.manifest else with_whole_files(state.keyed))
                if not keyed:
                    others = (state.operator, state.raw_keyed, state.raw_operator)
                    found += [stream for handle in others if handle for stream in stream_handles(handle)]
                    found += state.channel_streams
            if not keyed and operator.coordinator is not None:
                found.append(operator.coordinator)
        return tuple(dict.fromkeys(found))

    def checksums(self) -> dict[str, tuple[int, int]] | None:
        """Of files and segments, by their key -> (size in bytes, crc32c); None for a snapshot of Flink's own."""
        if self.manifest is None:
            return None
        return {key: known for file in self.manifest.files for key, known in file.checksums().items()}

    def identities(self) -> dict[str, tuple[int, int, int | None]]:
        """Of files and segments, by their key -> (size in bytes, crc32c, xxh3 where it was kept): by what two are
        the same."""
        files = self.manifest.files if self.manifest else ()
        return {key: known for file in files for key, known in file.identities().items()}

    def reader(self) -> StateReader:
        return PLACES.kind(self.directory).reader(self.directory, self.checksums(), self.allowed_root)

    def schema(self) -> KeyedStateSchema:
        """The schema in the manifest, with field names; without one, the union of what the headers of all handles name.
        Timers in raw keyed state are states behind those."""
        managed, raw = self.managed_schema, self.raw_timers
        if managed is None and not raw:
            raise NotFoundError(f"{self.directory}: no operator with keyed state", kind="no-operator")
        managed = managed or KeyedStateSchema(raw[0].key_type, self.keyed_operator().max_parallelism, ())
        states = {state.name: state for state in (*managed.states, *(part.descriptor for part in raw))}
        return replace(managed, states=tuple(states.values()))

    @cached_property
    def managed_schema(self) -> KeyedStateSchema | None:
        """The schema without timers in raw keyed state; None where there is no other keyed state."""
        if self.manifest:
            return self.manifest.schema
        if not self.keyed_handles:
            return None
        operator = self.keyed_operator()
        what = f"{self.directory}: keyed state of operator {self.operator_name(operator)}"
        return union_schema(self.reader(), self.keyed_handles, operator.max_parallelism, what, self.key_type)

    @cached_property
    def raw_timers(self) -> tuple[RawTimers, ...]:
        """Timers of Flink's in raw keyed state, handle by handle. Raises UnsupportedError (``raw-keyed-state``) for
        anything else that lies there."""
        operator = self.keyed_operator()
        found: list[RawTimers] = []
        for subtask, state in operator.subtasks:
            handle = state.raw_keyed
            if not isinstance(handle, KeyGroupsStateHandle) or is_empty(handle):
                continue
            what = f"{self.directory}: raw keyed state of {self.operator_name(operator)}, subtask {subtask}"
            found += read_raw_timers(self.reader().read(handle.stream), handle, operator.max_parallelism, what)
        return tuple(found)

    def sources(self) -> tuple[RestoreSource, ...]:
        """One a handle, ready to restore from, with the statistics that its entries must have.

        Raises UnsupportedError (``raw-keyed-state``) where that would leave timers behind."""
        if any(len(part.rows) for part in self.raw_timers):
            raise UnsupportedError(
                f"{self.directory}: timers in raw keyed state, which can be exported but not restored or compared",
                kind="raw-keyed-state",
                hint="take a savepoint with Flink: there they are state like any other",
            )
        return self._managed_sources()

    def _managed_sources(self) -> tuple[RestoreSource, ...]:
        schema, reader = self.managed_schema, self.reader()
        if schema is None:
            return ()
        return tuple(
            RestoreSource(
                handle,
                reader,
                schema,
                self.statistics(handle.key_group_range),
                self._checksummed(handle),
                partial=self.manifest is None,
            )
            for handle in self.handles()
        )

    def _checksummed(self, handle: KeyedStateHandle) -> bool:
        """Whether the manifest, which has a checksum of its own, has one for every file of the handle."""
        known = self.checksums() or {}
        return all(isinstance(s, ByteStreamStateHandle) or checksum_key(s) in known for s in stream_handles(handle))

    def position(self) -> SourcePosition | None:
        """How far the source was applied, from the state itself; None for a snapshot of Flink's own."""
        return self.manifest.position if self.manifest else None

    def statistics(self, key_groups: KeyGroupRange) -> tuple[StateStatistics, ...] | None:
        """The manifest's statistics of some key groups; None for a snapshot of Flink's own."""
        if self.manifest is None:
            return None
        cut = slice(key_groups.start, key_groups.end + 1)
        return tuple(StateStatistics(key_groups, s.entries[cut], s.digests[cut]) for s in self.manifest.statistics)

    def rows(self, scratch: str | None = None) -> Iterator[tuple[int, StateRows]]:
        """(state index, serialized entries) batch by batch, from storage, verified."""
        with located(self.directory), scratch_directory(scratch, "read") as directory:
            for number, source in enumerate(self._managed_sources()):
                reader = EntryReader(source, str(Path(directory) / str(number)))
                for window in windows_of(source.handle, self.window_bytes):
                    yield from reader.read([window])
                reader.close()
            if self.raw_timers:
                index_of = {state.name: index for index, state in enumerate(self.schema().states)}
                yield from ((index_of[part.descriptor.name], part.rows) for part in self.raw_timers if len(part.rows))

    def entries(
        self, state: str | None = None, scratch: str | None = None
    ) -> Iterator[tuple[StateDescriptor, StateRows]]:
        """(state, some of its serialized entries), of one state or of all; raises as :meth:`KeyedStateSchema.state`."""
        schema = self.schema()
        if state is not None:
            schema.state(state)
        for index, rows in self.rows(scratch):
            descriptor = schema.states[index]
            if len(rows) and state in (None, descriptor.name):
                yield descriptor, rows

    def tables(self, state: str | None = None, scratch: str | None = None) -> Iterator[tuple[str, pa.Table]]:
        """(state name, table) with the columns of :func:`to_table`."""
        schema = self.schema()
        for descriptor, rows in self.entries(state, scratch):
            with located(f"{self.directory}: state {descriptor.name}"):
                table = to_table(schema, descriptor, rows)
            yield descriptor.name, table

    def to_arrow(self, state: str, scratch: str | None = None) -> pa.Table:
        """All entries of one state, with the columns of :func:`to_table`."""
        schema = self.schema()
        empty = to_table(schema, schema.state(state), NO_ROWS)
        return pa.concat_tables([empty, *(table for _, table in self.tables(state, scratch))])


@contextmanager
def located(where: str) -> Iterator[None]:
    """Puts in front of an error where it happened, unless it names the place itself."""
    try:
        yield
    except StatelibError as error:
        directory = where.partition(": ")[0]
        place = PLACES.kind(directory).shown(directory)
        if place in error.message:
            raise
        raise type(error)(f"{where}: {error.message}", kind=error.kind, hint=error.hint) from error


def _holds_keyed_state(operator: OperatorState) -> bool:
    return any(s.keyed or (s.raw_keyed and not _is_empty(s.raw_keyed)) for _, s in operator.subtasks)


def _is_empty(raw: KeyedStateHandle) -> bool:
    return isinstance(raw, KeyGroupsStateHandle) and is_empty(raw)


def to_table(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> pa.Table:
    """Decode serialized entries into columns ``key_group, key[, namespace][, user_key], value``; timers
    into ``key_group, key[, namespace], timestamp``."""
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
    """Open a checkpoint or savepoint by its directory, or by the ``_metadata`` file in it.

    ``own``: statelib wrote it, so that a missing manifest is damage. ``storage_root``: the
    deployment's storage; a checkpoint that lies in it may share files with others of its pipeline,
    any other snapshot is confined to its directory. ``relocate``: prefix of paths in ``_metadata`` -> where
    that is now, for snapshots that were moved; files may lie below the new prefixes too, and nowhere else.
    ``key_type``: of keys in a change log that does not say it.

    Raises NotFoundError (``no-metadata``), CorruptStateError (``corrupt-metadata``), InvalidRequestError
    (``bad-relocation``).
    """
    relocation = relocation_at(path, relocate)
    kind = PLACES.kind(path)
    directory = kind.normalised(path.removesuffix("/_metadata"))
    data = kind.read_published(directory)
    metadata, manifest = read_checkpoint_file(data, f"{kind.shown(directory)}/_metadata", expect_manifest=own)
    roots = (*_own_roots(directory, storage_root, manifest), *relocation.roots)
    metadata, manifest = relocation.metadata(metadata), relocation.manifest(manifest)
    root = PLACES.kind(storage_root).normalised(storage_root) if storage_root is not None else None
    return Checkpoint(
        directory, metadata, manifest, data, allowed_root=roots or None, key_type=key_type, storage_root=root
    )


def relocation_at(path: str, relocate: Mapping[str, str] | None) -> Relocation:
    """Where what a snapshot at ``path`` refers to lies now. Raises InvalidRequestError (``bad-relocation``)."""
    found = relocation_of(relocate)
    for root in found.roots:
        if PLACES.kind(root) is not PLACES.kind(path):
            raise InvalidRequestError(
                f"{path} is relocated to {root}, in a storage of another kind: expected all of it in one",
                kind="bad-relocation",
                hint="copy both to the same storage",
            )
    return found


def _own_roots(directory: str, storage_root: str | None, manifest: CheckpointManifest | None) -> tuple[str, ...]:
    """Where a checkpoint of the deployment's own may have files besides its directory."""
    own_root = pipeline_directory(directory, storage_root)
    if own_root is None or storage_root is None:
        return ()
    if manifest is None or not manifest.origins:
        return (own_root,)
    root = PLACES.kind(storage_root).normalised(storage_root)
    return (own_root, *origin_directories(root, manifest.origins))


def origin_directories(root: str, origins: Sequence[Origin]) -> tuple[str, ...]:
    """Where the files of a fork's origins may lie: in the directories of those pipelines and savepoints, and
    always below the deployment's own storage."""
    pipelines = [f"{root}/{o.pipeline}" for o in origins]
    return (
        *pipelines,
        *(f"{root}/{SAVEPOINTS_DIRECTORY}/{savepoint_directory(o.pipeline, o.checkpoint_id)}" for o in origins),
    )


def pipeline_directory(directory: str, storage_root: str | None) -> str | None:
    """``<root>/<pipeline>`` of ``<root>/<pipeline>/chk-<id>``, None for any other directory."""
    if storage_root is None:
        return None
    root = PLACES.kind(storage_root).normalised(storage_root).rstrip("/")
    parent, _, name = directory.rpartition("/")
    beside = parent.rpartition("/")[0]
    return parent if beside == root and name.startswith(CHECKPOINT_PREFIX) else None
