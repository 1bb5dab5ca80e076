"""Where values end that only a user's code can read, in the heap stream, which has no lengths.

Each entry begins with a namespace and a key whose key group is that of the stretch of the stream it lies in, and what
follows the last one is read to the end of the key group. So the true places are always among those that fit; if no
more fit than there are entries, these are the true ones. Where more fit, nothing is said.
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
from statelib.serializers.codec import Codec
from statelib.serializers.containers import MapCodec, SequenceCodec
from statelib.serializers.exact import ends_by_itself
from statelib.serializers.jumps import jump_over

MOST_BYTES = 64 * 1024
"""Of a key group in which places are looked for: each of its bytes may be one."""
MOST_TRIES = 64
"""Places that look like the beginning of the next state and are read from there on."""


@dataclass(frozen=True)
class Group:
    """One key group of a stream, up to ``end``."""

    key_group: int
    end: int
    layouts: Sequence[Layout]
    what: str


Walk = Callable[[bytes, int, Group, Collection[int]], Iterator[Any]]


def possible_ends(raw: bytes, first: int, group: Group, missing: Collection[int], walk: Walk) -> list[int]:
    """Where the entries of a state may end, whose first one begins at ``first``: where the ``missing`` states fill the
    rest of the key group. None where it is too large to tell."""
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
            return []  # it may be the place
    return ends


def only_entries(
    raw: bytes, places: tuple[int, Sequence[int]], count: int, layout: Layout, key_group: int
) -> tuple[npt.NDArray[np.int64], int] | None:
    """Starts of the ``count`` entries and the end of the last, if no others are possible. ``places``: where the first
    begins, and where the last may end."""
    first, ends = places
    if len(ends) != 1 or ends[0] - first > MOST_BYTES or layout.key_groups is None or not _opaque(layout):
        return None
    begins = _Beginning(layout.codecs[0], layout.codecs[1], layout.key_groups, key_group)
    starts, at = [first], begins.behind(raw, first)
    try:
        while at < ends[0] and len(starts) <= count and count > 1:
            starts += [at] if begins.at(raw, at, ends[0]) else []
            at += 1
    except UnsupportedError:  # keys whose hash only their class knows, or that no column holds
        return None
    return (np.array(starts, np.int64), ends[0]) if len(starts) == count else None


def _opaque(layout: Layout) -> bool:
    """Lists and maps are taken apart, for which the ends of entries are not enough."""
    value = layout.codecs[-1]
    return not isinstance(value, SequenceCodec | MapCodec) and not ends_by_itself(value.type)


class _Beginning:
    """Whether a namespace and a key of a key group can be read at a place."""

    def __init__(
        self, namespace: Codec, key: Codec, groups: Callable[[pa.Array], npt.NDArray[np.int32]], key_group: int
    ) -> None:
        self._void = namespace.type == VOID
        self._over_namespace, self._over_key = jump_over((namespace,)), jump_over((key,))
        self._key, self._groups, self._key_group = key, groups, key_group

    def behind(self, raw: bytes, at: int) -> int:
        """Where the value of the entry at a place begins."""
        return self._over_key(raw, self._over_namespace(raw, at))

    def at(self, raw: bytes, at: int, end: int) -> bool:
        """Raises UnsupportedError where nothing tells."""
        if self._void and raw[at]:
            return False
        try:
            begin = self._over_namespace(raw, at)
            stop = self._over_key(raw, begin)
            if stop > end:
                return False
            cursors = np.array([begin, stop], np.int64)
            keys, _ = self._key.decode(np.frombuffer(raw, np.uint8), cursors[:1], cursors[1:])
        except (CorruptStateError, struct.error, IndexError):
            return False
        return not keys.null_count and int(self._groups(keys)[0]) == self._key_group
