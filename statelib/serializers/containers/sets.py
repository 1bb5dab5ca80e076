"""``java.util.Set``: an i32 count, then the elements, each after a flag, because one may be null.

Source: docs/spec/formats.md#containers.
"""

from functools import partial

from statelib.model.types import SetOf
from statelib.serializers.aspects.json_values import Json, ReadJson, read_flagged, text_order
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import BASE, composite_snapshot
from statelib.serializers.aspects.type_support import TypeSupport, no_last_part
from statelib.serializers.containers.nullable import FlaggedCodec
from statelib.serializers.containers.sequence_codec import SequenceCodec
from statelib.wire.reader import Reader


def _read_json(element: ReadJson, reader: Reader) -> Json:
    """Read a set. Elements are sorted by their text, because a Java set has no order of its own."""
    elements = (read_flagged(True, element, reader) for _ in range(reader.count(1)))
    return {"type": "set", "v": sorted(elements, key=text_order)}


SETS = TypeSupport(
    of=SetOf,
    codec=lambda type_, codec_of: SequenceCodec(type_, FlaggedCodec(codec_of(type_.element))),
    json_reader=lambda type_, reader_of: partial(_read_json, reader_of(type_.element)),
    snapshot=composite_snapshot(BASE + "SetSerializerSnapshot", 1, 1, SetOf, lambda type_: [type_.element]),
    plain_hash=NO_PLAIN_HASH,
    last_parts=no_last_part,
)
