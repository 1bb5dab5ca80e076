"""A search for the ends of values that only a user's own class can read, in the heap stream, which has no lengths.

Each entry begins with a namespace and a key; its key must belong to the key group that is being read, and the entries
fill the key group. The true starts of entries are therefore always among the places where a namespace and such a key
can be read. If there are no more such places than entries, they are the true starts. If there are more, the search has
no result.
"""

import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats.heap.walk import STATE, Layout
from statelib.model.types import VOID
from statelib.serializers.columns.codec import Codec
from statelib.serializers.containers.maps import MapCodec
from statelib.serializers.containers.sequence_codec import SequenceCodec
from statelib.serializers.skippers import skipper_of
from statelib.serializers.typed_json import ends_by_itself

MOST_BYTES = 64 * 1024
"""The size in bytes of the largest key group that is searched, because an entry may begin at each of its bytes."""
MOST_TRIES = 64
"""The number of places that are tried as the beginning of the next state."""


@dataclass(frozen=True)
class Group:
    """One key group of a stream; its bytes end at ``end``. ``what`` names it in errors."""

    key_group: int
    end: int
    layouts: Sequence[Layout]
    what: str


Walk = Callable[[bytes, int, Group, Collection[int]], Iterator[Any]]


def possible_ends(raw: bytes, first: int, group: Group, missing: Collection[int], walk: Walk) -> list[int]:
    """Return the places where the entries of a state may end; its first entry begins at ``first``.

    These are the places from which the ``missing`` states fill the rest of the key group. The list is empty if the key
    group is too large to be searched, or if the search cannot decide.
    """
    if not missing:
        return [group.end]
    if group.end - first > MOST_BYTES:
        return []
    ends, tries = [], 0
    for at in range(first, group.end - STATE.size * len(missing) + 1):
        state_id, count = STATE.unpack_from(raw, at)
        if state_id not in missing or not 0 <= count <= group.end - at:
            continue
        tries += 1
        if tries > MOST_TRIES:
            return []
        try:
            ends += [at] if all(True for _ in walk(raw, at, group, missing)) else []
        except CorruptStateError:
            continue
        except UnsupportedError:
            return []  # cannot be ruled out
    return ends


def only_entries(
    raw: bytes, places: tuple[int, Sequence[int]], count: int, layout: Layout, key_group: int
) -> tuple[npt.NDArray[np.int64], int] | None:
    """Return the starts of the ``count`` entries and the end of the last one, if no others are possible; else None.

    ``places``: the start of the first entry, and the possible ends of the last one.
    """
    first, ends = places
    if len(ends) != 1 or ends[0] - first > MOST_BYTES or layout.key_groups is None or not _opaque(layout):
        return None
    beginning = _Beginning(layout.codecs[0], layout.codecs[1], layout.key_groups, key_group)
    starts, at = [first], beginning.behind(raw, first)
    try:
        while at < ends[0] and len(starts) <= count and count > 1:
            starts += [at] if beginning.at(raw, at, ends[0]) else []
            at += 1
    except UnsupportedError:  # keys that cannot be hashed or decoded here
        return None
    return (np.array(starts, np.int64), ends[0]) if len(starts) == count else None


def _opaque(layout: Layout) -> bool:
    """Return whether only a user's own class can read the value. Lists and maps are excluded: to split them into rows,
    the ends of entries are not enough."""
    value = layout.codecs[-1]
    return not isinstance(value, SequenceCodec | MapCodec) and not ends_by_itself(value.type)


class _Beginning:
    """A test whether a namespace and a key of the given key group can be read at a place."""

    def __init__(
        self, namespace: Codec, key: Codec, groups: Callable[[pa.Array], npt.NDArray[np.int32]], key_group: int
    ) -> None:
        self._void = namespace.type == VOID
        self._over_namespace, self._over_key = skipper_of((namespace,)), skipper_of((key,))
        self._key, self._groups, self._key_group = key, groups, key_group

    def behind(self, raw: bytes, at: int) -> int:
        """Return the place where the value begins, for the entry at ``at``."""
        return self._over_key(raw, self._over_namespace(raw, at))

    def at(self, raw: bytes, at: int, end: int) -> bool:
        """Return whether an entry can begin at ``at``. Raise UnsupportedError if this cannot be decided."""
        if self._void and raw[at]:
            return False
        try:
            key_start = self._over_namespace(raw, at)
            key_end = self._over_key(raw, key_start)
            if key_end > end:
                return False
            cursors = np.array([key_start, key_end], np.int64)
            keys, _ = self._key.decode(np.frombuffer(raw, np.uint8), cursors[:1], cursors[1:])
        except (CorruptStateError, struct.error, IndexError):
            return False
        return not keys.null_count and int(self._groups(keys)[0]) == self._key_group
