"""The writer of the keyed state of one subtask of a Flink operator. It checks each entry before it writes it.

Source: docs/spec/formats.md#writing-a-savepoint (faulty state that Flink accepts without an error, and loses).
"""

from collections.abc import Iterable, Iterator

from statelib.backends.keys.order import byte_order, equal_neighbours
from statelib.errors import InvalidRequestError
from statelib.formats.canonical.chunks import Chunk, ChunkedStream
from statelib.model.handles import KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange, subtask_range
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateStatistics
from statelib.serializers.entries.key_group_check import prove_key_groups
from statelib.serializers.entries.key_hashes import has_own_hash
from statelib.serializers.entries.keys import decode_keys
from statelib.serializers.entries.rows import StateRows
from statelib.snapshots.uploads.streams import Uploads


def write_subtask(
    uploads: Uploads,
    operator: KeyedOperator,
    subtask: int,
    chunks: Iterable[Chunk],
    *,
    compressed: bool = True,
    header: bytes | None = None,
) -> tuple[KeyGroupsSavepointStateHandle, tuple[StateStatistics, ...]]:
    """Write the canonical stream of the key groups that ``subtask`` owns.

    Args:
        uploads: The streams of the savepoint.
        operator: The operator.
        subtask: The index of the subtask.
        chunks: The entries, as in :class:`ChunkedStream`: sorted within a chunk and by key group across chunks.
        compressed: Whether to compress with Snappy.
        header: The bytes to write instead of a new header; None for a new header.

    Returns:
        The handle of the stream, and the statistics per state, in the order of the schema.

    Raises:
        CorruptStateError: ``wrong-key-group``, and the kinds of :class:`ChunkedStream`.
        InvalidRequestError: ``duplicate-key``.
    """
    owned = subtask_range(subtask, operator.parallelism, operator.schema.max_parallelism)
    stream = ChunkedStream(operator.schema, owned, _checked_chunks(operator, chunks), compressed, header)
    written = uploads.write_pieces(stream)
    return KeyGroupsSavepointStateHandle(owned, stream.offsets, written.handle), stream.statistics


def chunk_of(key_groups: KeyGroupRange, states: Iterable[StateRows]) -> Chunk:
    """Return the entries of all states as one chunk, sorted by their serialized keys.

    ``states``: the unsorted entries per state, in the order of the schema."""
    return Chunk(key_groups, [rows.take(byte_order(rows.keys)) for rows in states])


def _checked_chunks(operator: KeyedOperator, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    """Yield the chunks. Raise an error if a key occurs twice, or an entry is in the wrong key group.

    The key group is checked only if the hash of the key can be computed."""
    is_hash_computable = operator.key_hash is not None or not has_own_hash(operator.schema.key_type)
    for chunk in chunks:
        for descriptor, rows in zip(operator.schema.states, chunk.states, strict=True):
            _check_distinct(operator.schema, descriptor, rows)
            if is_hash_computable:
                prove_key_groups(operator.schema, descriptor, rows, operator.key_hash)
        yield chunk


def _check_distinct(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> None:
    """Raise InvalidRequestError (``duplicate-key``) if a key occurs twice in ``rows``, which are sorted.

    From two entries with one key, Flink would keep only one, or merge both."""
    duplicates = equal_neighbours(rows.keys)
    if len(duplicates):
        decoded = decode_keys(schema, descriptor, rows.keys.take(duplicates[:1]))
        key = str(decoded.keys[0])[:200]
        raise InvalidRequestError(
            f"state {descriptor.name!r}: key {key} has two entries, expected one"
            f"{' for each user key' if descriptor.user_key_type is not None else ''}",
            kind="duplicate-key",
            hint="aggregate the rows of a key first; the elements of a list state are one column of lists",
        )
