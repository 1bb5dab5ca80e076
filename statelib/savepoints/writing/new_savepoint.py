"""The writing of a canonical savepoint from which a Flink job can start. Its operators, which are identified by uid,
come from columns or from another savepoint.

The savepoint has Flink's format and no statelib manifest after the metadata (decision 60). The metadata has version 3;
a rewritten savepoint keeps the version of the original if that version contains names and uids (decision 109).
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
from statelib.serializers.entries.encoding import encode_entries
from statelib.serializers.entries.rows import NO_ROWS, StateRows, join_rows, key_groups_of
from statelib.snapshots.uploads.streams import Uploads
from statelib.snapshots.writers.keyed import chunk_of, write_subtask
from statelib.snapshots.writers.operator import write_operator_states
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.filesystem.storage import DEFAULT_INLINE_THRESHOLD_BYTES
from statelib.storage.names import savepoint_directory
from statelib.storage.ports.kind import CheckpointStorage, StorageSettings
from statelib.storage.ports.views import CheckpointStreamFactory, StorageReference
from statelib.storage.registry import PLACES, new_attempt


@dataclass(frozen=True)
class NewSavepoint:
    """The place of a savepoint that is to be written: the directory ``<target>/savepoint-<name>-<savepoint_id>``. It
    can be pickled.

    ``target``: the URI of the parent directory. ``compressed``: whether each key group is compressed with Snappy; Flink
    recognises this without a setting."""

    target: str
    name: str
    savepoint_id: int = 1
    compressed: bool = True

    def __post_init__(self) -> None:
        pipeline_name(self.name)

    def storage(self, inline_threshold_bytes: int = DEFAULT_INLINE_THRESHOLD_BYTES) -> CheckpointStorage:
        return PLACES.storage(self.target, StorageSettings(pipeline_name(self.name), inline_threshold_bytes))

    def claim(self) -> StorageReference:
        """Create the directory and return its reference.

        Raises ConflictError (``location-taken``) if a savepoint was published in it."""
        try:
            return self.storage().initialize_savepoint_location(CheckpointId(self.savepoint_id), self.target)
        except ConflictError as error:
            if error.kind != "location-taken":
                raise
            name = savepoint_directory(pipeline_name(self.name), CheckpointId(self.savepoint_id))
            raise ConflictError(
                f"{self.target.rstrip('/')}/{name}: there is a savepoint already, expected a new directory",
                kind="location-taken",
                hint="choose another --id, --name or --target",
            ) from error

    @contextmanager
    def claimed(self) -> Iterator[StorageReference]:
        """Return a context that creates the directory as :meth:`claim` does. If its body fails, the directory is
        removed, unless there are files in it."""
        reference = self.claim()
        try:
            yield reference
        except BaseException:
            with suppress(StatelibError):  # the error of the body is the one to raise
                directory = reference.directory
                PLACES.remover(directory).remove_directory(directory, (PLACES.parent_of(directory),))
            raise

    def streams(
        self,
        reference: StorageReference,
        number: int,
        *,
        attempt: AttemptId | None = None,
        inline: int = DEFAULT_INLINE_THRESHOLD_BYTES,
    ) -> CheckpointStreamFactory:
        """Return the stream factory of one writer of the savepoint. ``number``: the number of the writer, which is
        unique within the savepoint. ``attempt``: the id of the attempt; None stands for a new one. ``inline``: content
        of at most this many bytes is stored inside ``_metadata``."""
        attempt_id = new_attempt() if attempt is None else attempt
        checkpoint_id = CheckpointId(self.savepoint_id)
        return self.storage(inline).resolve_checkpoint_storage_location(checkpoint_id, reference, attempt_id, number)

    def uploads(
        self,
        reference: StorageReference,
        number: int,
        *,
        attempt: AttemptId | None = None,
        inline: int = DEFAULT_INLINE_THRESHOLD_BYTES,
    ) -> Uploads:
        """Return a context for the uploads of one writer. At its end, files are discarded unless ``complete`` was
        called. Arguments are those of :meth:`streams`."""
        return Uploads(self.streams(reference, number, attempt=attempt, inline=inline), CloseableRegistry())

    def publish(
        self,
        reference: StorageReference,
        operators: Sequence[OperatorState],
        unregistered: Collection[Subtask] = (),
        like: CheckpointMetadata | None = None,
    ) -> str:
        """Write ``_metadata`` after all data is durable, and return the URI of the directory.

        ``unregistered``: the subtasks that need not have keyed state. ``like``: metadata whose version is used if it
        contains names and uids.

        Raises CorruptStateError and InvalidRequestError as :func:`check_whole` does, ConflictError
        (``location-taken``) if another writer has published a savepoint here."""
        check_whole(operators, unregistered)
        template = CheckpointMetadata(self.savepoint_id, ()) if like is None else like
        metadata = replace(template, checkpoint_id=self.savepoint_id, operators=tuple(operators))
        data = encode_metadata(metadata) + SIGNATURE
        if self.storage().publish_metadata(reference, data) != data:
            raise ConflictError(
                f"{reference.directory}: another savepoint was published here meanwhile", kind="location-taken"
            )
        return reference.directory


class SavepointWriter:
    """A context that writes a savepoint: operators are added one after the other, then :meth:`publish` completes it. If
    the context ends without :meth:`publish`, everything that was written is removed.

    ``place``: where the savepoint is written. ``like``: metadata whose version is used if it contains names and
    uids."""

    def __init__(self, place: NewSavepoint, like: CheckpointMetadata | None = None) -> None:
        self._place = place
        self._like = like
        self._stack = ExitStack()
        self._reference = self._stack.enter_context(place.claimed())
        self.uploads = self._stack.enter_context(place.uploads(self._reference, 0))
        self.copies = self._stack.enter_context(place.uploads(self._reference, 1, inline=0))
        """The uploads for copies of existing streams. Each copy is a file, even a small one."""
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
        """Add an operator with keyed state. ``states``: the entries of each state, by name; a state that is left out
        has no entries. ``operator_states``: as for :meth:`add_operator_state`.

        The columns are ``key, value`` and, depending on the kind of state, ``user_key``, ``namespace``, ``timestamp``.
        All entries are held in memory; ``statelib bootstrap`` can write state that is larger than memory.

        Raises InvalidRequestError (``unknown-state``, ``duplicate-key``, ``duplicate-operator``, and the errors of
        :func:`encode_entries`), CorruptStateError (``wrong-key-group``)."""
        for name in states:
            operator.schema.state(name)
        whole = all_key_groups(operator.schema.max_parallelism)
        entries = chunk_of(whole, [_rows(operator, d, states.get(d.name, ())) for d in operator.schema.states])
        handles = [
            write_subtask(self.uploads, operator, i, [_part_of(entries, owned)], compressed=self._place.compressed)[0]
            for i, owned in enumerate(subtask_ranges(operator.parallelism, operator.schema.max_parallelism))
        ]
        keyed = keyed_operator_state(operator, handles)
        self.put(with_operator_states(keyed, self._operator_states(operator_states, operator.parallelism)))

    def add_operator_state(
        self, uid: str, contents: Sequence[OperatorStateContent], parallelism: int = 1, max_parallelism: int = 128
    ) -> None:
        """Add an operator without keyed state. The elements of list state and union state are divided among its
        subtasks; each subtask has a copy of broadcast state.

        Raises InvalidRequestError (``bad-parallelism``, ``bad-max-parallelism``, ``duplicate-operator``), and the
        errors of :func:`write_operator_states`."""
        check_parallelism(parallelism, max_parallelism)
        operator = operator_without_keys(uid, parallelism, max_parallelism)
        self.put(with_operator_states(operator, self._operator_states(contents, parallelism)))

    def _operator_states(
        self, contents: Sequence[OperatorStateContent], parallelism: int
    ) -> list[OperatorStreamStateHandle]:
        return write_operator_states(self.uploads, contents, parallelism) if contents else []

    def put(self, operator: OperatorState, unregistered: Collection[int] = ()) -> None:
        """Add an operator whose files are already written to this savepoint. ``unregistered``: the subtasks without
        keyed state although others have some, because their code has not registered a state yet.

        Raises InvalidRequestError (``duplicate-operator``)."""
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
        """Complete the savepoint and return the URI of its directory. Raises as :meth:`NewSavepoint.publish` does."""
        check_whole(self._operators, self._unregistered)
        self.uploads.complete()
        self.copies.complete()
        return self._place.publish(self._reference, self._operators, self._unregistered, self._like)


def keyed_operator_state(operator: KeyedOperator, handles: Sequence[KeyGroupsSavepointStateHandle]) -> OperatorState:
    """Return the operator with keyed state in ``handles``: one handle per subtask, in the order of the subtasks."""
    subtasks = tuple((index, OperatorSubtaskState(keyed=handle)) for index, handle in enumerate(handles))
    return OperatorState(
        operator_id(operator.uid), operator.parallelism, operator.schema.max_parallelism, subtasks, uid=operator.uid
    )


def operator_without_keys(uid: str, parallelism: int, max_parallelism: int) -> OperatorState:
    """Return an operator whose subtasks have no state."""
    subtasks = tuple((index, OperatorSubtaskState()) for index in range(parallelism))
    return OperatorState(operator_id(uid), parallelism, max_parallelism, subtasks, uid=uid)


def with_operator_states(operator: OperatorState, handles: Sequence[OperatorStreamStateHandle]) -> OperatorState:
    """Return the operator with operator state in ``handles``: one handle per subtask, in the order of the subtasks. If
    ``handles`` is empty, return the operator unchanged."""
    if not handles:
        return operator
    subtasks = tuple((i, replace(state, operator=handles[i])) for i, state in operator.subtasks)
    return replace(operator, subtasks=subtasks)


def _part_of(chunk: Chunk, key_groups: KeyGroupRange) -> Chunk:
    """Return the entries of the given key groups. The entries of ``chunk`` must be sorted by key."""
    width = prefix_width(chunk.key_groups.end + 1)
    return Chunk(key_groups, [cut_rows(rows, key_groups, width) for rows in chunk.states])


def cut_rows(rows: StateRows, key_groups: KeyGroupRange, width: int) -> StateRows:
    """Return the entries of the given key groups. ``rows`` must be sorted by key. ``width``: the number of bytes of the
    key-group prefix of a key."""
    if not len(rows):
        return NO_ROWS
    groups = key_groups_of(rows.keys, width)
    start, stop = np.searchsorted(groups, [key_groups.start, key_groups.end + 1]).tolist()
    return StateRows(rows.keys.slice(start, stop), rows.values.slice(start, stop))


def _rows(operator: KeyedOperator, descriptor: StateDescriptor, tables: pa.Table | Iterable[pa.Table]) -> StateRows:
    batches = [tables] if isinstance(tables, pa.Table) else list(tables)
    return join_rows([encode_entries(operator.schema, descriptor, table, operator.key_hash) for table in batches])
