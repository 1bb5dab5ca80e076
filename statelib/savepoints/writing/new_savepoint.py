"""Writing a canonical savepoint that a Flink job starts from: operators by uid, from columns or out of another one.

It is Flink's in every respect, with no manifest of statelib behind its metadata (decision 60). That is of version 3,
or of the version that a rewritten savepoint had, if it holds names and uids (decision 109).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import numpy as np
import pyarrow as pa

from statelib.coordinator.whole_savepoint import Subtask, check_whole
from statelib.errors import ConflictError, InvalidRequestError, StatelibError
from statelib.formats.canonical.chunks import Chunk
from statelib.formats.manifest.trailer import SIGNATURE
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.formats.metadata.operator_id import operator_id
from statelib.formats.operator_state import OperatorStateContent
from statelib.model.checkpoint import CheckpointMetadata, OperatorState, OperatorSubtaskState
from statelib.model.handles import KeyGroupsSavepointStateHandle, OperatorStreamStateHandle
from statelib.model.ids import AttemptId, CheckpointId, pipeline_name
from statelib.model.key_groups import KeyGroupRange, all_key_groups, check_parallelism, prefix_width, subtask_ranges
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import StateDescriptor
from statelib.serializers.entry_columns import encode_entries
from statelib.serializers.rows import NO_ROWS, StateRows, join_rows, key_groups_of
from statelib.snapshots.keyed_writer import chunk_of, write_subtask
from statelib.snapshots.operator_writer import write_operator_states
from statelib.snapshots.uploads import Uploads
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.storage import DEFAULT_INLINE_THRESHOLD_BYTES
from statelib.storage.placed_removal import PlacedRemover, parent_of
from statelib.storage.places import CheckpointStorage, StorageSettings
from statelib.storage.registry import PLACES, RETRIES, new_attempt
from statelib.storage.views import CheckpointStreamFactory, StorageReference


@dataclass(frozen=True)
class NewSavepoint:
    """Where a savepoint is to lie: ``<target>/savepoint-<name>-<savepoint_id>``. Picklable.

    ``compressed``: each key group Snappy-framed; the job needs no setting to read it."""

    target: str
    name: str
    savepoint_id: int = 1
    compressed: bool = True

    def __post_init__(self) -> None:
        pipeline_name(self.name)

    def storage(self, inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES) -> CheckpointStorage:
        return PLACES.storage(self.target, StorageSettings(pipeline_name(self.name), inline_threshold_bytes))

    def claim(self) -> StorageReference:
        """Make the directory; ConflictError (``location-taken``) if a savepoint was published there."""
        return self.storage().initialize_savepoint_location(CheckpointId(self.savepoint_id), self.target)

    @contextmanager
    def claimed(self) -> Iterator[StorageReference]:
        """A context with the directory of :meth:`claim`. When its body fails, the directory is gone again, unless
        something lies in it."""
        reference = self.claim()
        try:
            yield reference
        except BaseException:
            with suppress(StatelibError):  # what went wrong before is what the caller has to know
                directory = reference.directory
                PlacedRemover(directory, RETRIES).remove_directory(directory, (parent_of(directory),))
            raise

    def streams(
        self,
        reference: StorageReference,
        number: int,
        *,
        attempt: AttemptId | None = None,
        inline: int = DEFAULT_INLINE_THRESHOLD_BYTES,
    ) -> CheckpointStreamFactory:
        """Streams of the writer ``number``; ``attempt`` None: of a new try. ``inline``: bytes up to which content
        lies in ``_metadata``."""
        tried = new_attempt() if attempt is None else attempt
        place = CheckpointId(self.savepoint_id)
        return self.storage(inline).resolve_checkpoint_storage_location(place, reference, tried, number)

    def uploads(
        self,
        reference: StorageReference,
        number: int,
        *,
        attempt: AttemptId | None = None,
        inline: int = DEFAULT_INLINE_THRESHOLD_BYTES,
    ) -> Uploads:
        """What is written in this context is discarded unless it is completed; as :meth:`streams`."""
        return Uploads(self.streams(reference, number, attempt=attempt, inline=inline), CloseableRegistry())

    def publish(
        self,
        reference: StorageReference,
        operators: Sequence[OperatorState],
        unregistered: Collection[Subtask] = (),
        like: CheckpointMetadata | None = None,
    ) -> str:
        """Write ``_metadata``, once all data is durable; the directory's URI. ``like``: the metadata whose version is
        kept if it holds names and uids.

        Raises what :func:`check_whole` raises; ConflictError (``location-taken``) if somebody was faster."""
        check_whole(operators, unregistered)
        named = CheckpointMetadata(self.savepoint_id, ()) if like is None else like
        data = encode_metadata(replace(named, checkpoint_id=self.savepoint_id, operators=tuple(operators))) + SIGNATURE
        if self.storage().publish_metadata(reference, data) != data:
            raise ConflictError(
                f"{reference.directory}: another savepoint was published here meanwhile", kind="location-taken"
            )
        return reference.directory


class SavepointWriter:
    """A context in which operators are added, one after the other; :meth:`publish` makes them a savepoint.

    Left without it, nothing that was written stays."""

    def __init__(self, place: NewSavepoint, like: CheckpointMetadata | None = None) -> None:
        self._place = place
        self._like = like
        self._stack = ExitStack()
        self._reference = self._stack.enter_context(place.claimed())
        self.uploads = self._stack.enter_context(place.uploads(self._reference, 0))
        self.copies = self._stack.enter_context(place.uploads(self._reference, 1, inline=0))
        """Streams for what is carried over: files, however small."""
        self._operators: list[OperatorState] = []
        self._unregistered: set[Subtask] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def add(
        self,
        operator: KeyedOperator,
        states: Mapping[str, pa.Table | Iterable[pa.Table]],
        operator_states: Sequence[OperatorStateContent] = (),
    ) -> None:
        """An operator whose states hold these entries; a state left out has none.

        Columns: ``key, value`` and, by kind, ``user_key``, ``namespace``, ``timestamp``. All of it is held in
        memory; ``statelib bootstrap`` is for what does not fit. Raises InvalidRequestError (``unknown-state``,
        ``duplicate-key``, those of :func:`encode_entries`), CorruptStateError (``wrong-key-group``)."""
        for name in states:
            operator.schema.state(name)
        whole = all_key_groups(operator.schema.max_parallelism)
        entries = chunk_of(whole, [_rows(operator, d, states.get(d.name, ())) for d in operator.schema.states])
        handles = [
            write_subtask(self.uploads, operator, i, [_part_of(entries, owned)], compressed=self._place.compressed)[0]
            for i, owned in enumerate(subtask_ranges(operator.parallelism, operator.schema.max_parallelism))
        ]
        added = keyed_operator_state(operator, handles)
        self.put(with_operator_states(added, self._operator_states(operator_states, operator.parallelism)))

    def add_operator_state(
        self, uid: str, contents: Sequence[OperatorStateContent], parallelism: int = 1, max_parallelism: int = 128
    ) -> None:
        """An operator without keyed state: list state is spread over its subtasks, as union state is, each of which
        gets a copy of broadcast state. Raises as :func:`write_operator_states`."""
        check_parallelism(parallelism, max_parallelism)
        operator = operator_without_keys(uid, parallelism, max_parallelism)
        self.put(with_operator_states(operator, self._operator_states(contents, parallelism)))

    def _operator_states(
        self, contents: Sequence[OperatorStateContent], parallelism: int
    ) -> list[OperatorStreamStateHandle]:
        return write_operator_states(self.uploads, contents, parallelism) if contents else []

    def put(self, operator: OperatorState, unregistered: Collection[int] = ()) -> None:
        """An operator whose handles lie in this savepoint already. ``unregistered``: subtasks without keyed state
        where the others have some, because their code registered none yet."""
        if operator.operator_id in {o.operator_id for o in self._operators}:
            raise InvalidRequestError(
                f"operator {operator.uid or operator.operator_id.hex()} was added already", kind="duplicate-operator"
            )
        self._operators.append(operator)
        self._unregistered |= {(operator.operator_id, index) for index in unregistered}

    @property
    def compressed(self) -> bool:
        return self._place.compressed

    def publish(self) -> str:
        """The directory's URI. Raises as :meth:`NewSavepoint.publish`."""
        check_whole(self._operators, self._unregistered)
        self.uploads.complete()
        self.copies.complete()
        return self._place.publish(self._reference, self._operators, self._unregistered, self._like)


def keyed_operator_state(operator: KeyedOperator, handles: Sequence[KeyGroupsSavepointStateHandle]) -> OperatorState:
    """``handles``: one a subtask, in their order."""
    subtasks = tuple((index, OperatorSubtaskState(keyed=handle)) for index, handle in enumerate(handles))
    return OperatorState(
        operator_id(operator.uid), operator.parallelism, operator.schema.max_parallelism, subtasks, uid=operator.uid
    )


def operator_without_keys(uid: str, parallelism: int, max_parallelism: int) -> OperatorState:
    """Its subtasks hold nothing yet."""
    subtasks = tuple((index, OperatorSubtaskState()) for index in range(parallelism))
    return OperatorState(operator_id(uid), parallelism, max_parallelism, subtasks, uid=uid)


def with_operator_states(operator: OperatorState, handles: Sequence[OperatorStreamStateHandle]) -> OperatorState:
    """``handles``: one a subtask, in their order, or none at all."""
    if not handles:
        return operator
    subtasks = tuple((i, replace(state, operator=handles[i])) for i, state in operator.subtasks)
    return replace(operator, subtasks=subtasks)


def _part_of(chunk: Chunk, key_groups: KeyGroupRange) -> Chunk:
    """Those of the entries that lie in some of the key groups; they are sorted by key."""
    width = prefix_width(chunk.key_groups.end + 1)
    return Chunk(key_groups, [cut_rows(rows, key_groups, width) for rows in chunk.states])


def cut_rows(rows: StateRows, key_groups: KeyGroupRange, width: int) -> StateRows:
    """The entries of some key groups out of sorted ones. ``width``: bytes of the key-group prefix."""
    if not len(rows):
        return NO_ROWS
    groups = key_groups_of(rows.keys, width)
    start, stop = np.searchsorted(groups, [key_groups.start, key_groups.end + 1]).tolist()
    return StateRows(rows.keys.slice(start, stop), rows.values.slice(start, stop))


def _rows(operator: KeyedOperator, descriptor: StateDescriptor, tables: pa.Table | Iterable[pa.Table]) -> StateRows:
    given = [tables] if isinstance(tables, pa.Table) else list(tables)
    return join_rows([encode_entries(operator.schema, descriptor, table, operator.key_hash) for table in given])
