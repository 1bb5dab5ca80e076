"""``java.util.List``: an i32 count, then the elements, of which none is null.

Source: docs/spec/formats.md#containers, #hash-codes-of-keys.
"""

from functools import partial
from typing import Any

from statelib.model.types import ListOf
from statelib.serializers.aspects.json_values import read_sequence
from statelib.serializers.aspects.plain_hashing import PlainHash, PlainHasher, combined
from statelib.serializers.aspects.snapshot_payloads import BASE, composite_snapshot
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.containers.sequence_codec import SequenceCodec


def _plain_hash(type_: ListOf, value: Any, hasher: PlainHasher) -> int:
    return combined((hasher.in_row(type_.element, element) for element in value), 1)


LISTS = TypeSupport(
    of=ListOf,
    codec=lambda type_, codec_of: SequenceCodec(type_, codec_of(type_.element)),
    json_reader=lambda type_, reader_of: partial(read_sequence, "list", reader_of(type_.element)),
    snapshot=composite_snapshot(BASE + "ListSerializerSnapshot", 1, 1, ListOf, lambda type_: [type_.element]),
    words={"list": lambda parser: ListOf(*parser.parts("list", 1))},
    plain_hash=PlainHash(in_row=_plain_hash),
    last_parts=no_last_part,
)
