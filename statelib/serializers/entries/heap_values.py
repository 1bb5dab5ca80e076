"""Values of list and map state in heap streams, which hold whole lists and maps with their counts.

Source: docs/spec/formats.md#heap-stream, #containers (ListSerializer, MapSerializer) against #values.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from statelib.serializers.columns.codec import Cursor
from statelib.serializers.columns.cursors import fixed
from statelib.serializers.columns.elements import SEPARATOR, separated
from statelib.serializers.containers.maps import MapCodec
from statelib.serializers.containers.sequence_codec import SequenceCodec
from statelib.wire.ragged import Bytes, Ragged, gather, join, offsets_of

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MapEntries:
    """Entries of several maps, map after map. Map ``i`` has ``counts[i]`` entries.

    ``values``: a flag that is 1 for null, and the value if it is not null."""

    counts: Counts
    user_keys: Ragged
    values: Ragged


def lists_from_heap(codec: SequenceCodec, data: Bytes, cursor: Cursor, limit: Cursor) -> tuple[Ragged, Counts]:
    """Read a list at each cursor. Return its elements with separators, as keyed state stores them, and their number."""
    counts, starts, ends = codec.starts(data, cursor, limit)
    bounds = offsets_of(counts)
    # an element ends where the next one begins, and the last one ends where its list ends
    stops = np.append(starts[1:], 0)
    stops[bounds[1:][counts > 0] - 1] = ends[counts > 0]
    separators = np.ones(len(starts), np.int64)
    separators[bounds[:-1][counts > 0]] = 0
    commas = Ragged(np.full(int(separators.sum()), SEPARATOR, np.uint8), offsets_of(separators))
    elements = join([commas, gather(data, starts, stops[: len(starts)] - starts)])
    return Ragged(elements.data, elements.offsets[bounds]), counts


def lists_to_heap(codec: SequenceCodec, rows: Ragged) -> Ragged:
    """Return the lists with their counts. This is the inverse of :func:`lists_from_heap`."""
    starts, bounds = separated(codec.element, rows)
    counts = np.diff(bounds)
    stops = np.append(starts[1:], 0) - 1
    stops[bounds[1:][counts > 0] - 1] = rows.offsets[1:][counts > 0]
    elements = gather(rows.data, starts, stops[: len(starts)] - starts)
    return join([fixed(counts.astype("i4")), Ragged(elements.data, elements.offsets[bounds])])


def maps_from_heap(codec: MapCodec, data: Bytes, cursor: Cursor, limit: Cursor) -> MapEntries:
    """Read a map at each cursor and return the entries of all maps."""
    counts, starts, ends = codec.starts(data, cursor, limit)
    bounds = offsets_of(counts)
    stops = np.append(starts[1:], 0)
    stops[bounds[1:][counts > 0] - 1] = ends[counts > 0]
    stops = stops[: len(starts)]
    flags = codec.key.skip(data, starts, stops)
    return MapEntries(counts, gather(data, starts, flags - starts), gather(data, flags, stops - flags))


def maps_to_heap(entries: MapEntries) -> Ragged:
    """Return one row of bytes per map. This is the inverse of :func:`maps_from_heap`."""
    values = entries.values
    null = values.data[values.starts] != 0  # Flink's heap backend writes bytes after a null
    flagged = gather(values.data, values.starts, np.where(null, 1, values.lengths))
    rows = join([entries.user_keys, flagged])
    bounds = offsets_of(entries.counts)
    return join([fixed(entries.counts.astype("i4")), Ragged(rows.data, rows.offsets[bounds])])
