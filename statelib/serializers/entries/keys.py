"""Composite keys: key group, key, namespace and, in map state, user key. Every backend and format has the same bytes.

Source: docs/spec/formats.md#key-groups, #composite-keys (CompositeKeySerializationUtils).
"""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import CorruptStateError, InvalidRequestError, UnsupportedError
from statelib.model.key_groups import assign_key_groups, prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import VOID, Opaque, StateType
from statelib.serializers.columns.arrow import one_nan
from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import big_endian, encode_varlen, require
from statelib.serializers.entries.rows import key_groups_of
from statelib.serializers.entries.timers import MOMENT_BYTES, decode_moments, encode_moments
from statelib.serializers.registry import codec_of, key_bytes
from statelib.serializers.typed_json import opaque_is_last, opaque_part
from statelib.wire.ragged import Bytes, Ragged, from_fixed, gather, join

KeyGroups = npt.NDArray[np.int32]
KEY_COLUMNS = ("key_group", "key", "namespace", "user_key", "timestamp")
"""The columns of a key, in the order in which readers see them."""


@dataclass(frozen=True)
class DecodedKeys:
    """The parts of composite keys, one row per key. ``user_keys`` is set for map state, ``namespaces`` for states whose
    namespace is not void, ``timestamps`` for timers."""

    key_groups: KeyGroups
    keys: pa.Array
    user_keys: pa.Array | None
    namespaces: pa.Array | None = None
    timestamps: pa.Array | None = None

    def columns(self) -> dict[str, pa.Array]:
        """Return the parts that are set, by the names of :data:`KEY_COLUMNS`."""
        columns = (pa.array(self.key_groups), self.keys, self.namespaces, self.user_keys, self.timestamps)
        return {name: column for name, column in zip(KEY_COLUMNS, columns, strict=True) if column is not None}


@dataclass(frozen=True, eq=False)
class KeyParts:
    """The serialized parts of composite keys, one row per key, without the lengths between them."""

    key_groups: KeyGroups
    keys: Ragged
    namespaces: Ragged
    user_keys: Ragged | None = None


def key_groups(schema: KeyedStateSchema, keys: pa.Array) -> KeyGroups:
    """Return the key group that Flink assigns to each key by the hash code of its Java object.

    Raise InvalidRequestError (``null-key``), UnsupportedError (``no-key-hash``)."""
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
    timestamps: pa.Array | None = None,
) -> Ragged:
    """Return the composite key of each row. Each argument has one element per row.

    ``groups``: the result of :func:`key_groups`. ``user_keys``: for map state only. ``namespaces``: for states whose
    namespace is not void only. ``timestamps``: for timers only.
    Raise InvalidRequestError (``bad-key-parts`` and the kinds of the codecs)."""
    _check_parts(descriptor, user_keys, namespaces, timestamps)
    spaces = pa.nulls(len(keys)) if namespaces is None else namespaces
    user_type = descriptor.user_key_type
    parts = KeyParts(
        groups,
        key_bytes(schema.key_type, one_nan(keys)),
        codec_of(descriptor.namespace_type).encode(spaces),
        None if user_type is None else codec_of(user_type).encode(one_nan(user_keys)),
    )
    if timestamps is not None:
        return join([group_prefix(schema, groups), encode_moments(timestamps), parts.keys, parts.namespaces])
    return join_keys(schema, descriptor, parts)


def join_keys(schema: KeyedStateSchema, descriptor: StateDescriptor, parts: KeyParts) -> Ragged:
    """Return the composite keys with these serialized parts."""
    ambiguous = has_lengths(schema.key_type, descriptor.namespace_type)
    joined = [group_prefix(schema, parts.key_groups)]
    joined += _delimited(parts.keys, ambiguous)
    joined += _delimited(parts.namespaces, ambiguous)
    return join(joined if parts.user_keys is None else [*joined, parts.user_keys])


def split_keys(schema: KeyedStateSchema, descriptor: StateDescriptor, keys: Ragged) -> KeyParts:
    """Return the serialized parts of composite keys. This is the inverse of :func:`join_keys`. User keys are not
    checked: each is the rest of its row.

    Raise as :func:`decode_keys` does."""
    namespace = codec_of(descriptor.namespace_type)
    width = prefix_width(schema.max_parallelism)
    ambiguous = has_lengths(schema.key_type, descriptor.namespace_type)
    data, limit = keys.data, keys.offsets[1:]
    require(keys.starts, width, limit, "key group")
    start = keys.starts + width
    end = _key_ends(schema, descriptor, data, start, limit)
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
    """Return the parts of composite keys. This is the inverse of :func:`encode_keys`.

    Raise CorruptStateError (``truncated-value``, ``trailing-bytes``, ``bad-key-length`` and the kinds of the
    codecs), UnsupportedError (``opaque-key``) for keys that only a user's code can read, if nothing shows where one
    ends."""
    columns = key_columns(schema, descriptor, keys, KEY_COLUMNS)
    groups = key_groups_of(keys, prefix_width(schema.max_parallelism))
    return DecodedKeys(
        groups, columns["key"], columns.get("user_key"), columns.get("namespace"), timestamps=columns.get("timestamp")
    )


def key_columns(
    schema: KeyedStateSchema, descriptor: StateDescriptor, keys: Ragged, wanted: Collection[str]
) -> dict[str, pa.Array]:
    """Return the wanted columns of :data:`KEY_COLUMNS` that the state has. Parts before a wanted column are skipped;
    parts after the last one are not read.

    Raise as :func:`decode_keys` does."""
    width = prefix_width(schema.max_parallelism)
    timers, data, limit = descriptor.kind is StateKind.TIMERS, keys.data, keys.offsets[1:]
    ambiguous = not timers and has_lengths(schema.key_type, descriptor.namespace_type)
    require(keys.starts, width, limit, "key group")
    columns, cursor = {}, keys.starts + width
    if "key_group" in wanted:
        columns["key_group"] = pa.array(key_groups_of(keys, width))
    if timers:
        timestamps, cursor = decode_moments(data, cursor, limit)
        columns |= {"timestamp": timestamps} if "timestamp" in wanted else {}
    parts = {"key": schema.key_type, "namespace": descriptor.namespace_type, "user_key": descriptor.user_key_type}
    types = [(name, type_) for name, type_ in parts.items() if type_ is not None]
    count = 1 + max((i for i, (name, _) in enumerate(types) if name in wanted), default=-1)
    for name, type_ in types[:count]:
        start, codec = cursor, codec_of(type_)
        ends = _opaque_key_ends(schema, descriptor, limit) if name == "key" else None
        if name in wanted and (type_ != VOID or name != "namespace"):
            columns[name], cursor = codec.decode(data, start, limit if ends is None else ends)
        else:
            cursor = codec.skip(data, start, limit) if ends is None else ends
        if name != "user_key":
            cursor = _after_length(data, start, cursor, limit, ambiguous)
    if count == len(types):
        check_end(cursor, limit, f"key of state {descriptor.name!r}")
    return columns


def prefixed_keys(schema: KeyedStateSchema, descriptor: StateDescriptor, keys: Ragged) -> Ragged:
    """Return the stored bytes of key group and key, one row per key. Equal bytes are equal keys, in different states
    too. The composite key of each entry of a key, other than a timer, begins with these bytes.

    Raise CorruptStateError (``truncated-value``), UnsupportedError (``opaque-key``)."""
    width, data, limit = prefix_width(schema.max_parallelism), keys.data, keys.offsets[1:]
    require(keys.starts, width, limit, "key group")
    timers = descriptor.kind is StateKind.TIMERS
    start = keys.starts + (width + MOMENT_BYTES if timers else width)
    end = _key_ends(schema, descriptor, data, start, limit)
    if not timers:
        return gather(data, keys.starts, end - keys.starts)
    groups = gather(data, keys.starts, np.full(len(keys), width, np.int64))
    return join([groups, gather(data, start, end - start)])


def shows_where_keys_end(schema: KeyedStateSchema, descriptor: StateDescriptor) -> bool:
    """Return whether the keys of the state can be told from what follows them. Those that only a user's code can read
    can, if nothing but a namespace of fixed width follows."""
    alone = descriptor.user_key_type is None and codec_of(descriptor.namespace_type).width > 0
    return opaque_part(schema.key_type) is None or (alone and opaque_is_last(schema.key_type))


def only_entries(descriptor: StateDescriptor, prefixed: Ragged) -> Ragged:
    """Return the composite keys of a state that has one entry per key. ``prefixed``: a result of
    :func:`prefixed_keys`."""
    return join([prefixed, codec_of(descriptor.namespace_type).encode(pa.nulls(len(prefixed)))])


def check_end(cursor: Cursor, limit: Cursor, what: str) -> None:
    """Raise CorruptStateError (``trailing-bytes``) unless every row was read to its end."""
    rows = np.flatnonzero(cursor != limit)
    if len(rows):
        row = int(rows[0])
        raise CorruptStateError(
            f"{what} in row {row}: expected the end at offset {cursor[row]}, found {limit[row] - cursor[row]} more",
            kind="trailing-bytes",
            hint="the state was written with another type",
        )


def _key_ends(
    schema: KeyedStateSchema, descriptor: StateDescriptor, data: Bytes, start: Cursor, limit: Cursor
) -> Cursor:
    """Return the cursors after the keys. Raise UnsupportedError (``opaque-key``)."""
    ends = _opaque_key_ends(schema, descriptor, limit)
    return codec_of(schema.key_type).skip(data, start, limit) if ends is None else ends


def _opaque_key_ends(schema: KeyedStateSchema, descriptor: StateDescriptor, limit: Cursor) -> Cursor | None:
    """Return the cursors after keys that only a user's code can read, None if the key type shows where a key ends.

    Raise UnsupportedError (``opaque-key``)."""
    opaque = opaque_part(schema.key_type)
    if opaque is None:
        return None
    if not shows_where_keys_end(schema, descriptor):
        raise opaque_key(opaque, descriptor)
    return limit - codec_of(descriptor.namespace_type).width


def opaque_key(opaque: Opaque, descriptor: StateDescriptor) -> UnsupportedError:
    """Return the error for keys of which nothing shows where they end."""
    return UnsupportedError(
        f"state {descriptor.name!r}: only {opaque.serializer} can find where its keys end",
        kind="opaque-key",
        hint="states of other kinds than map can be exported: name one of them",
    )


def _check_parts(descriptor: StateDescriptor, *parts: pa.Array | None) -> None:
    timers = descriptor.kind is StateKind.TIMERS
    expected = [descriptor.user_key_type is not None, descriptor.namespace_type != VOID, timers]
    if expected != [part is not None for part in parts]:
        raise InvalidRequestError(
            f"keys of state {descriptor.name!r} of kind {descriptor.kind}: expected user keys for map state only, "
            "namespaces for states with a namespace only, and timestamps for timers only",
            kind="bad-key-parts",
        )


def group_prefix(schema: KeyedStateSchema, groups: KeyGroups) -> Ragged:
    """Return the prefix of composite keys in these key groups."""
    return from_fixed(big_endian(groups.astype(f"u{prefix_width(schema.max_parallelism)}")))


def has_lengths(key: StateType, namespace: StateType) -> bool:
    """Return whether Flink writes a length after the key and one after the namespace. The length of void counts as
    fixed, so plain state has none."""
    return codec_of(key).reported_length < 0 and codec_of(namespace).reported_length < 0


def _delimited(rows: Ragged, ambiguous: bool) -> list[Ragged]:
    return [rows, encode_varlen(rows.lengths, 8, 0)] if ambiguous else [rows]


def _after_length(data: Bytes, start: Cursor, end: Cursor, limit: Cursor, ambiguous: bool) -> Cursor:
    """Return the cursors after the length that follows the bytes ``start..end``.

    Raise CorruptStateError (``bad-key-length``) if it is not their length."""
    if not ambiguous:
        return end
    expected = encode_varlen(end - start, 8, 0)
    require(end, expected.lengths, limit, "length of key or namespace")
    actual = gather(data, end, expected.lengths)
    if not np.array_equal(actual.data, expected.data):
        offset = int(end[np.searchsorted(actual.offsets, np.argmax(actual.data != expected.data), "right") - 1])
        raise CorruptStateError(
            f"key or namespace that ends at offset {offset}: the length behind it is not its length",
            kind="bad-key-length",
        )
    return end + expected.lengths
