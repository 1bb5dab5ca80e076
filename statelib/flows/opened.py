"""A checkpoint opened for reading: its metadata, its manifest, and its state as Arrow columns."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from statelib.errors import InvalidRequestError, NotFoundError, StatelibError
from statelib.flows.wiring import PLACES
from statelib.formats.canonical import read_header
from statelib.formats.keyed_header import decode_keyed_header
from statelib.formats.manifest import read_checkpoint_file
from statelib.formats.operator_id import operator_id
from statelib.model.checkpoint import CheckpointManifest, CheckpointMetadata, OperatorState, SourcePosition
from statelib.model.handles import IncrementalRemoteKeyedStateHandle, KeyedStateHandle, KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateStatistics
from statelib.restore.entries import iter_entries
from statelib.restore.plan import RestoreSource
from statelib.serializers.keys import decode_keys
from statelib.serializers.rows import NO_ROWS, StateRows
from statelib.serializers.values import decode_values
from statelib.storage.views import StateReader

if TYPE_CHECKING:
    from statelib.flows.diff import Diff


@dataclass(frozen=True)
class Checkpoint:
    """What :func:`open_checkpoint` gives. ``manifest`` is None for a snapshot of Flink's own.
    ``selected``: the id of the operator to look at, None = the only one with keyed state.
    ``allowed_root``: where its files may lie besides ``directory``, for checkpoints that share them."""

    directory: str
    metadata: CheckpointMetadata
    manifest: CheckpointManifest | None
    metadata_bytes: bytes = field(repr=False)
    selected: bytes | None = None
    allowed_root: str | None = None

    @property
    def metadata_size_bytes(self) -> int:
        return len(self.metadata_bytes)

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
        return self.operators[0]

    def operator_name(self, operator: OperatorState) -> str:
        """The uid where it is known (metadata before version 5 has none, but our own manifest tells), else the id
        in hex."""
        if operator.uid:
            return operator.uid
        if self.manifest and operator_id(self.manifest.pipeline) == operator.operator_id:
            return self.manifest.pipeline
        return operator.operator_id.hex()

    def each_operator(self) -> tuple["Checkpoint", ...]:
        """This checkpoint once for each operator with keyed state, with that operator selected."""
        return tuple(replace(self, selected=o.operator_id) for o in self.operators if _holds_keyed_state(o))

    def select(self, name: str) -> "Checkpoint":
        """With the operator of that uid or hex id; NotFoundError (``no-operator``) naming those there are."""
        parts = self.each_operator()
        for part in parts:
            operator = part.keyed_operator()
            if name in (self.operator_name(operator), operator.operator_id.hex()):
                return part
        known = ", ".join(self.operator_name(part.keyed_operator()) for part in parts) or "none"
        raise NotFoundError(
            f"{self.directory}: no operator {name!r} with keyed state: there are {known}", kind="no-operator"
        )

    def handles(self) -> tuple[KeyedStateHandle, ...]:
        return tuple(s.keyed for _, s in self.keyed_operator().subtasks if s.keyed is not None)

    def checksums(self) -> dict[str, tuple[int, int]] | None:
        """Path as in the handle -> (size in bytes, crc32c); None for a snapshot of Flink's own."""
        return {f.path: (f.size_bytes, f.crc32c) for f in self.manifest.files} if self.manifest else None

    def reader(self) -> StateReader:
        return PLACES.kind(self.directory).reader(self.directory, self.checksums(), self.allowed_root)

    def schema(self) -> KeyedStateSchema:
        """Of the manifest, with field names; from the stream's own header where there is none."""
        if self.manifest:
            return self.manifest.schema
        operator, handles = self.keyed_operator(), self.handles()
        if not handles:
            raise NotFoundError(f"{self.directory}: no operator with keyed state", kind="no-operator")
        handle, reader = handles[0], self.reader()
        what = f"{self.directory}: keyed state of operator {self.operator_name(operator)}"
        if isinstance(handle, KeyGroupsSavepointStateHandle):
            return read_header(partial(reader.read_range, handle.stream), handle, operator.max_parallelism, what).schema
        stream = handle.meta if isinstance(handle, IncrementalRemoteKeyedStateHandle) else handle.stream
        return decode_keyed_header(reader.read(stream), operator.max_parallelism, what).schema

    def sources(self) -> tuple[RestoreSource, ...]:
        """One a handle, ready to restore from, with the statistics that its entries must have."""
        schema, reader = self.schema(), self.reader()
        return tuple(
            RestoreSource(handle, reader, schema, self.statistics(handle.key_group_range)) for handle in self.handles()
        )

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
        with located(self.directory), tempfile.TemporaryDirectory(dir=scratch, prefix="statelib-read-") as directory:
            for number, source in enumerate(self.sources()):
                yield from iter_entries(source, None, str(Path(directory) / str(number)))

    def tables(self, state: str | None = None, scratch: str | None = None) -> Iterator[tuple[str, pa.Table]]:
        """(state name, table) with columns ``key_group, key[, user_key], value``."""
        schema = self.schema()
        if state is not None:
            schema.state(state)
        for index, rows in self.rows(scratch):
            descriptor = schema.states[index]
            if len(rows) and state in (None, descriptor.name):
                with located(f"{self.directory}: state {descriptor.name}"):
                    table = to_table(schema, descriptor, rows)
                yield descriptor.name, table

    def to_arrow(self, state: str, scratch: str | None = None) -> pa.Table:
        """All entries of one state: ``key_group, key[, user_key], value``."""
        schema = self.schema()
        empty = to_table(schema, schema.state(state), NO_ROWS)
        return pa.concat_tables([empty, *(table for _, table in self.tables(state, scratch))])

    def diff(self, other: "Checkpoint", scratch: str | None = None) -> "Diff":
        """What leads from this snapshot to the ``other`` one, state by state."""
        from statelib.flows.diff import Diff  # a diff opens nothing itself: it is made of two of these

        return Diff(self, other, scratch)


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
    return any(subtask.keyed for _, subtask in operator.subtasks)


def to_table(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> pa.Table:
    """Decode serialized entries into columns ``key_group, key[, user_key], value``."""
    decoded = decode_keys(schema, descriptor, rows.keys)
    columns = {"key_group": pa.array(decoded.key_groups), "key": decoded.keys}
    if decoded.user_keys is not None:
        columns["user_key"] = decoded.user_keys
    return pa.table({**columns, "value": decode_values(descriptor, rows.values)})


def open_checkpoint(path: str, *, own: bool = False, storage_root: str | None = None) -> Checkpoint:
    """Open a checkpoint or savepoint by its directory, or by the ``_metadata`` file in it.

    ``own``: statelib wrote it, so that a missing manifest is damage. ``storage_root``: the
    deployment's storage; a checkpoint that lies in it may share files with others of its pipeline,
    any other snapshot is confined to its directory.

    Raises NotFoundError (``no-metadata``), CorruptStateError (``corrupt-metadata``).
    """
    kind = PLACES.kind(path)
    directory = kind.normalised(path.removesuffix("/_metadata"))
    data = kind.read_published(directory)
    metadata, manifest = read_checkpoint_file(data, f"{kind.shown(directory)}/_metadata", expect_manifest=own)
    return Checkpoint(directory, metadata, manifest, data, allowed_root=pipeline_directory(directory, storage_root))


def pipeline_directory(directory: str, storage_root: str | None) -> str | None:
    """``<root>/<pipeline>`` of ``<root>/<pipeline>/chk-<id>``, None for any other directory."""
    if storage_root is None:
        return None
    root = PLACES.kind(storage_root).normalised(storage_root).rstrip("/")
    parent, _, name = directory.rpartition("/")
    beside = parent.rpartition("/")[0]
    return parent if beside == root and name.startswith("chk-") else None
