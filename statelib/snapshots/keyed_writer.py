"""Writing the keyed state of one subtask of a Flink operator, checked entry for entry on the way.

Source: flink-formats.md section 11; flink-acceptance.md section 2 (what Flink takes without a word, and loses).
"""

from collections.abc import Iterable, Iterator

from statelib.backends.key_order import byte_order, equal_neighbours
from statelib.errors import InvalidRequestError
from statelib.formats.canonical.chunks import Chunk, ChunkedStream
from statelib.model.handles import KeyGroupsSavepointStateHandle
from statelib.model.key_groups import KeyGroupRange, subtask_range
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateStatistics
from statelib.model.types import Opaque, Pojo
from statelib.serializers.key_proof import prove_key_groups
from statelib.serializers.keys import decode_keys
from statelib.serializers.rows import StateRows
from statelib.snapshots.uploads import Uploads


def write_subtask(
    uploads: Uploads,
    operator: KeyedOperator,
    subtask: int,
    chunks: Iterable[Chunk],
    *,
    compressed: bool = True,
    header: bytes | None = None,
) -> tuple[KeyGroupsSavepointStateHandle, tuple[StateStatistics, ...]]:
    """The canonical stream of the key groups that ``subtask`` owns. ``chunks`` as in :class:`ChunkedStream`.

    Raises CorruptStateError (``wrong-key-group`` and those of the stream), InvalidRequestError (``duplicate-key``)."""
    owned = subtask_range(subtask, operator.parallelism, operator.schema.max_parallelism)
    stream = ChunkedStream(operator.schema, owned, _checked(operator, chunks), compressed, header)
    written = uploads.write_pieces(stream)
    return KeyGroupsSavepointStateHandle(owned, stream.offsets, written.handle), stream.statistics


def chunk_of(key_groups: KeyGroupRange, states: Iterable[StateRows]) -> Chunk:
    """The entries of each state, sorted here, as one chunk."""
    return Chunk(key_groups, [rows.take(byte_order(rows.keys)) for rows in states])


def _checked(operator: KeyedOperator, chunks: Iterable[Chunk]) -> Iterator[Chunk]:
    provable = operator.key_hash is not None or not isinstance(operator.schema.key_type, Pojo | Opaque)
    for chunk in chunks:
        for descriptor, rows in zip(operator.schema.states, chunk.states, strict=True):
            _check_distinct(operator.schema, descriptor, rows)
            if provable:
                prove_key_groups(operator.schema, descriptor, rows, operator.key_hash)
        yield chunk


def _check_distinct(schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows) -> None:
    """Equal keys lie next to each other. Of two entries of one key, Flink would keep one or join both."""
    twice = equal_neighbours(rows.keys)
    if len(twice):
        decoded = decode_keys(schema, descriptor, rows.keys.take(twice[:1]))
        key = str(decoded.keys[0])[:200]
        raise InvalidRequestError(
            f"state {descriptor.name!r}: key {key} has two entries, expected one"
            f"{' for each user key' if descriptor.user_key_type is not None else ''}",
            kind="duplicate-key",
            hint="aggregate the rows of a key first; the elements of a list state are one column of lists",
        )
