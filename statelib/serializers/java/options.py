"""A value after a flag that is 1, or the flag 0 alone: Scala's ``Option``, and an element of an array of objects.

The type occurs only as the form of an aliased type; see ``aliased.py``.

Source: docs/spec/formats.md#containers.
"""

from functools import partial

from statelib.model.types import Option
from statelib.serializers.aspects.json_values import read_flagged
from statelib.serializers.aspects.plain_hashing import NO_PLAIN_HASH
from statelib.serializers.aspects.snapshot_payloads import SnapshotSupport, never_written
from statelib.serializers.aspects.type_support import TypeSupport
from statelib.serializers.containers.nullable import FlaggedCodec

OPTIONS = TypeSupport(
    of=Option,
    codec=lambda type_, codec_of: FlaggedCodec(codec_of(type_.element), null_flag=0),
    json_reader=lambda type_, reader_of: partial(read_flagged, False, reader_of(type_.element)),
    snapshot=SnapshotSupport(never_written),
    plain_hash=NO_PLAIN_HASH,
    last_parts=lambda type_: (type_.element,),
)
