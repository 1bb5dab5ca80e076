"""Values of keyed state by kind: a plain value, a list with separators, or a map's value after a null flag.

Source: docs/spec/formats.md#values (RocksDBListState, RocksDBMapState, ListDelimitedSerializer).
"""

import numpy as np
import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import ListOf
from statelib.serializers.columns.codec import Codec
from statelib.serializers.columns.elements import SEPARATOR, separated
from statelib.serializers.containers.maps import decode_flagged, encode_flagged
from statelib.serializers.containers.sequence_codec import SequenceCodec
from statelib.serializers.entries.keys import check_end
from statelib.serializers.entries.timers import no_values
from statelib.serializers.registry import codec_of
from statelib.wire.ragged import Ragged, from_fixed, join, offsets_of


def value_arrow_type(descriptor: StateDescriptor) -> pa.DataType:
    """Return the Arrow type of the column of values: a list for list state, else that of ``value_type``."""
    element = codec_of(descriptor.value_type).arrow_type
    return pa.list_(element) if descriptor.kind is StateKind.LIST else element


def encode_values(descriptor: StateDescriptor, values: pa.Array) -> Ragged:
    """Return the bytes of each value, in memory of their own. ``values`` has the type :func:`value_arrow_type`; only
    values of map state may be null.

    Raise InvalidRequestError (``empty-list``): list state without elements is not stored at all."""
    if descriptor.kind is StateKind.TIMERS:
        return from_fixed(np.empty((len(values), 0), np.uint8))
    codec = codec_of(descriptor.value_type)
    if descriptor.kind is StateKind.MAP:
        return encode_flagged(codec, values).joined
    if descriptor.kind is StateKind.LIST:
        return _encode_list(descriptor, codec, values).joined
    return codec.encode(values).joined


def decode_values(descriptor: StateDescriptor, values: Ragged) -> pa.Array:
    """Return the column of values. This is the inverse of :func:`encode_values`.

    Raise CorruptStateError (``truncated-value``, ``trailing-bytes``, ``bad-separator`` and the kinds of the codecs)."""
    if descriptor.kind is StateKind.TIMERS:
        return no_values(descriptor.name, values)
    codec = codec_of(descriptor.value_type)
    if descriptor.kind is StateKind.LIST:
        return _decode_list(descriptor, codec, values)
    limit = values.offsets[1:]
    if descriptor.kind is StateKind.MAP:
        decoded, end = decode_flagged(codec, values.data, values.starts, limit)
        end = np.where(values.data[values.starts] == 0, end, limit)  # Flink's heap backend writes bytes after a null
    else:
        decoded, end = codec.decode(values.data, values.starts, limit)
    check_end(end, limit, f"value of state {descriptor.name!r}")
    return decoded


def _encode_list(descriptor: StateDescriptor, codec: Codec, values: pa.Array) -> Ragged:
    elements, offsets = _sequence(descriptor, codec).elements(values)
    counts = np.diff(offsets)
    if not counts.all():
        raise InvalidRequestError(
            f"list state {descriptor.name!r} in row {int(np.argmin(counts))}: expected one element or more, found 0",
            kind="empty-list",
            hint="delete the key instead",
        )
    separators = np.ones(len(elements), np.int64)
    separators[offsets[:-1]] = 0
    commas = Ragged(np.full(int(separators.sum()), SEPARATOR, np.uint8), offsets_of(separators))
    rows = join([commas, codec.encode(elements)])
    return Ragged(rows.data, rows.offsets[offsets])


def _decode_list(descriptor: StateDescriptor, codec: Codec, values: Ragged) -> pa.Array:
    starts, offsets = separated(codec, values)
    limits = np.repeat(values.offsets[1:], np.diff(offsets))
    elements, _ = codec.decode(values.data, starts, limits)
    return _sequence(descriptor, codec).from_elements(elements, offsets)


def _sequence(descriptor: StateDescriptor, codec: Codec) -> SequenceCodec:
    return SequenceCodec(ListOf(descriptor.value_type), codec)
