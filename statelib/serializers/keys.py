"""Composite keys: key group, key, namespace[, user key], the same bytes in every backend and format.

Source: flink-formats.md sections 1 and 2.1 (CompositeKeySerializationUtils).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.key_groups import assign_key_groups, prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.model.types import VOID
from statelib.serializers.codec import Codec, Cursor
from statelib.serializers.registry import codec_of
from statelib.serializers.rows import key_groups_of
from statelib.serializers.spans import big_endian, encode_varlen, require
from statelib.wire.ragged import Bytes, Ragged, from_fixed, gather, join

KeyGroups = npt.NDArray[np.int32]


@dataclass(frozen=True)
class DecodedKeys:
    """The parts of composite keys, row by row. ``user_keys`` is set for map state,
    ``namespaces`` for states whose namespace is not void."""

    key_groups: KeyGroups
    keys: pa.Array
    user_keys: pa.Array | None
    namespaces: pa.Array | None = None


@dataclass(frozen=True, eq=False)
class KeyParts:
    """The parts of composite keys, still serialized, row by row; lengths between them left out."""

    key_groups: KeyGroups
    keys: Ragged
    namespaces: Ragged
    user_keys: Ragged | None = None


def key_groups(schema: KeyedStateSchema, keys: pa.Array) -> KeyGroups:
    """Key group of each key: Flink's, from the hash code of the key's Java object.

    Raises InvalidRequestError (``null-key``), UnsupportedError (``no-key-hash``)."""
    if keys.null_count:
        raise InvalidRequestError(
            f"key column of type {schema.key_type}: expected no null, found {keys.null_count} of {len(keys)}",
            kind="null-key",
            hint="set on_null_key: drop to leave such events out",
        )
    return assign_key_groups(codec_of(schema.key_type).java_hash(keys), schema.max_parallelism)


def encode_keys(
    schema: KeyedStateSchema,
    descriptor: StateDescriptor,
    keys: pa.Array,
    groups: KeyGroups,
    user_keys: pa.Array | None = None,
    *,
    namespaces: pa.Array | None = None,
) -> Ragged:
    """Composite key of each row; all arguments have one element a row.

    ``groups``: what :func:`key_groups` gives. ``user_keys``: map state, and only there.
    ``namespaces``: states with a namespace other than void, and only there."""
    _check_parts(descriptor, user_keys, namespaces)
    spaces = pa.nulls(len(keys)) if namespaces is None else namespaces
    user_type = descriptor.user_key_type
    parts = KeyParts(
        groups,
        codec_of(schema.key_type).encode(keys),
        codec_of(descriptor.namespace_type).encode(spaces),
        None if user_type is None else codec_of(user_type).encode(user_keys),
    )
    return join_keys(schema, descriptor, parts)


def join_keys(schema: KeyedStateSchema, descriptor: StateDescriptor, parts: KeyParts) -> Ragged:
    """Composite keys from their serialized parts."""
    ambiguous = _ambiguous(codec_of(schema.key_type), codec_of(descriptor.namespace_type))
    joined = [from_fixed(big_endian(parts.key_groups.astype(f"u{prefix_width(schema.max_parallelism)}")))]
    joined += _delimited(parts.keys, ambiguous)
    joined += _delimited(parts.namespaces, ambiguous)
    return join(joined if parts.user_keys is None else [*joined, parts.user_keys])


def split_keys(schema: KeyedStateSchema, descriptor: StateDescriptor, keys: Ragged) -> KeyParts:
    """The inverse of :func:`join_keys`; of a user key no more is checked than where it begins.

    Raises CorruptStateError as :func:`decode_keys` does."""
    key, namespace = codec_of(schema.key_type), codec_of(descriptor.namespace_type)
    width = prefix_width(schema.max_parallelism)
    ambiguous = _ambiguous(key, namespace)
    data, limit = keys.data, keys.offsets[1:]
    require(keys.starts, width, limit, "key group")
    start = keys.starts + width
    end = key.skip(data, start, limit)
    serialized = gather(data, start, end - start)
    start = _after_length(data, start, end, limit, ambiguous)
    end = namespace.skip(data, start, limit)
    namespaces = gather(data, start, end - start)
    end = _after_length(data, start, end, limit, ambiguous)
    user_keys = None
    if descriptor.user_key_type is None:
        check_end(end, limit, f"key of state {descriptor.name!r}")
    else:
        user_keys = gather(data, end, limit - end)
    return KeyParts(key_groups_of(keys, width), serialized, namespaces, user_keys)


def decode_keys(schema: KeyedStateSchema, descriptor: StateDescriptor, keys: Ragged) -> DecodedKeys:
    """The inverse of :func:`encode_keys`.

    Raises CorruptStateError (``truncated-value``, ``trailing-bytes``, ``bad-key-length`` and the kinds
    of the codecs)."""
    key, namespace = codec_of(schema.key_type), codec_of(descriptor.namespace_type)
    width = prefix_width(schema.max_parallelism)
    ambiguous = _ambiguous(key, namespace)
    limit = keys.offsets[1:]
    require(keys.starts, width, limit, "key group")
    cursor = keys.starts + width
    key_values, end = key.decode(keys.data, cursor, limit)
    cursor = _after_length(keys.data, cursor, end, limit, ambiguous)
    spaces, end = namespace.decode(keys.data, cursor, limit)
    cursor = _after_length(keys.data, cursor, end, limit, ambiguous)
    user_keys = None
    if descriptor.user_key_type is not None:
        user_keys, cursor = codec_of(descriptor.user_key_type).decode(keys.data, cursor, limit)
    check_end(cursor, limit, f"key of state {descriptor.name!r}")
    namespaces = None if descriptor.namespace_type == VOID else spaces
    return DecodedKeys(key_groups_of(keys, width), key_values, user_keys, namespaces)


def check_end(cursor: Cursor, limit: Cursor, what: str) -> None:
    """Raise CorruptStateError (``trailing-bytes``) unless each row was read to its end."""
    rows = np.flatnonzero(cursor != limit)
    if len(rows):
        row = int(rows[0])
        raise CorruptStateError(
            f"{what} in row {row}: expected the end at offset {cursor[row]}, found {limit[row] - cursor[row]} more",
            kind="trailing-bytes",
            hint="the state was written with another type",
        )


def _check_parts(descriptor: StateDescriptor, user_keys: pa.Array | None, namespaces: pa.Array | None) -> None:
    expected = (descriptor.user_key_type is not None, descriptor.namespace_type != VOID)
    if expected != (user_keys is not None, namespaces is not None):
        raise InvalidRequestError(
            f"keys of state {descriptor.name!r} of kind {descriptor.kind}: expected user keys for map state only, "
            "and namespaces for states with a namespace only",
            kind="bad-key-parts",
        )


def _ambiguous(key: Codec, namespace: Codec) -> bool:
    """Whether Flink writes lengths behind key and namespace; void reports 0, so plain state has none."""
    return key.reported_length < 0 and namespace.reported_length < 0


def _delimited(rows: Ragged, ambiguous: bool) -> list[Ragged]:
    return [rows, encode_varlen(rows.lengths, 8, 0)] if ambiguous else [rows]


def _after_length(data: Bytes, start: Cursor, end: Cursor, limit: Cursor, ambiguous: bool) -> Cursor:
    """The cursor behind the length that follows ``start..end``, which must be that of the bytes."""
    if not ambiguous:
        return end
    expected = encode_varlen(end - start, 8, 0)
    require(end, expected.lengths, limit, "length of key or namespace")
    found = gather(data, end, expected.lengths)
    if not np.array_equal(found.data, expected.data):
        where = int(end[np.searchsorted(found.offsets, np.argmax(found.data != expected.data), "right") - 1])
        raise CorruptStateError(
            f"key or namespace that ends at offset {where}: the length behind it is not its length",
            kind="bad-key-length",
        )
    return end + expected.lengths
