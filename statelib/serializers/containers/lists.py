"""``java.util.List``: an i32 count, then the elements, of which none is null.

Source: docs/spec/formats.md#containers, #hash-codes-of-keys.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from statelib.model.types import ListOf
from statelib.serializers.aspects.json_values import read_sequence
from statelib.serializers.aspects.plain_hashing import PlainHash, PlainHasher, combined
from statelib.serializers.aspects.snapshot_payloads import BASE, composite_snapshot
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.columns.codec import Hashes
from statelib.serializers.columns.java_hashes import list_hash, nulls_to_zero, signed
from statelib.serializers.containers.sequence_codec import SequenceCodec


@dataclass(frozen=True)
class ListCodec(SequenceCodec):
    """The codec of lists, which have a hash."""

    def java_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(partial(self._hash, deep=False), values))

    def deep_hash(self, values: pa.Array) -> Hashes:
        return signed(nulls_to_zero(partial(self._hash, deep=True), values))

    def _hash(self, values: pa.Array, deep: bool) -> Hashes:
        elements, offsets = self.elements(values)
        hashes = self.element.deep_hash(elements) if deep else self.element.java_hash(elements)
        return signed(list_hash(hashes.view(np.uint32), offsets))


def _plain_hash(type_: ListOf, value: Any, hasher: PlainHasher) -> int:
    return combined((hasher.in_row(type_.element, element) for element in value), 1)


LISTS = TypeSupport(
    of=ListOf,
    codec=lambda type_, codec_of: ListCodec(type_, codec_of(type_.element)),
    json_reader=lambda type_, reader_of: partial(read_sequence, "list", reader_of(type_.element)),
    snapshot=composite_snapshot(BASE + "ListSerializerSnapshot", 1, 1, ListOf, lambda type_: [type_.element]),
    plain_hash=PlainHash(in_row=_plain_hash),
    last_parts=no_last_part,
)
