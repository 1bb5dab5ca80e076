"""The walk from entry to entry through a key group of the heap stream; ``formats.heap.reading`` describes the layout.

A key group that is too large for memory is walked piece by piece.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.formats import snappy_framing
from statelib.formats.heap.entries import HeapEntries
from statelib.formats.keyed.group_spans import Buffered, GroupSpan
from statelib.model.amounts import number_of
from statelib.serializers.aspects.steps import Skipper
from statelib.serializers.columns.codec import Codec
from statelib.serializers.skippers import skipper_of, width_of

KEY_GROUP = struct.Struct(">i")
STATE = struct.Struct(">Hi")


@dataclass(frozen=True)
class Layout:
    """The codecs of the parts of one entry, in their order.

    ``key_groups``: a function that returns the key group of each decoded key; None for timers.
    """

    codecs: tuple[Codec, ...]
    key_groups: Callable[[pa.Array], npt.NDArray[np.int32]] | None = None

    @cached_property
    def width(self) -> int:
        """The size in bytes of every entry; -1 if sizes differ."""
        return width_of(self.codecs)

    @cached_property
    def skip(self) -> Skipper:
        """The function that returns the end of the entry at an offset."""
        return skipper_of(self.codecs)

    @property
    def least(self) -> int:
        """The size in bytes of the smallest possible entry."""
        return sum(max(codec.width, 1) for codec in self.codecs)


def entry_starts(
    raw: bytes, span: tuple[int, int], count: int, layout: Layout, what: str
) -> tuple[npt.NDArray[np.int64], int]:
    """Return the starts of ``count`` entries from ``span[0]`` on, and the end of the last one.

    Raise CorruptStateError (``bad-count``, ``truncated-group``) if they reach beyond ``span[1]``.
    """
    at, end = span
    if not 0 <= count * layout.least <= end - at:
        raise CorruptStateError(f"{what}: {count} entries in {end - at} bytes", kind="bad-count")
    starts, stop = whole_entries(raw, span, count, layout)
    if len(starts) < count:
        raise _beyond(what, len(starts), count, end)
    return starts, stop


def whole_entries(raw: bytes, span: tuple[int, int], count: int, layout: Layout) -> tuple[npt.NDArray[np.int64], int]:
    """Return the starts of at most ``count`` entries that lie completely in ``span``, and the end of the last one."""
    at, end = span
    if layout.width > 0:
        count = min(count, (end - at) // layout.width)
        return at + np.arange(count, dtype=np.int64) * layout.width, at + count * layout.width
    starts: list[int] = []
    append, skip = starts.append, layout.skip
    try:
        for _ in range(count):
            append(at)
            at = skip(raw, at)
    except (struct.error, IndexError, CorruptStateError) as error:
        if isinstance(error, CorruptStateError) and error.kind != "truncated-value":
            raise
        at = starts.pop()
    while starts and at > end:
        at = starts.pop()
    return np.array(starts, np.int64), at


def large_group(
    parts: Iterator[memoryview],
    group: GroupSpan,
    compressed: bool,
    layouts: Sequence[Layout],
    what: str,
    *,
    only: int | None = None,
) -> Iterator[tuple[int, HeapEntries]]:
    """Yield (state id, entries) of one key group that arrives in parts.

    The entries of one item arrived together. ``only``: the state that is needed; if it is complete, the key group ends
    at a value that nobody can skip. Raise CorruptStateError (``truncated-group``, ``trailing-bytes`` and others), and
    UnsupportedError (``opaque-entries``).
    """
    first = next(parts)
    check_key_group(first, group, what)
    parts = chain([first[KEY_GROUP.size :]], parts)
    what = f"{what}, key group {group.key_group}"
    content = (
        snappy_framing.decompress_pieces(parts, what, several=True)
        if compressed
        else (np.frombuffer(part, np.uint8) for part in parts)
    )
    missing = set(range(len(layouts)))
    state_id = left = 0
    buffered = Buffered(content)
    for data in buffered:
        raw, at = data.tobytes(), 0
        while left or (missing and at + STATE.size <= len(raw)):
            if not left:
                state_id, left = next_state(raw, at, missing, what)
                at += STATE.size
                continue
            try:
                starts, stop = whole_entries(raw, (at, len(raw)), left, layouts[state_id])
            except UnsupportedError:
                if only is None or only in {state_id, *missing}:
                    raise
                return
            if not len(starts):
                break
            groups = np.full(len(starts), group.key_group, np.int32)
            yield state_id, HeapEntries(data, groups, starts, np.append(starts[1:], stop))
            at, left = stop, left - len(starts)
        buffered.rest = data[at:]
    _check_end(left, len(missing), len(buffered.rest), what)


def _check_end(entries: int, states: int, trailing: int, what: str) -> None:
    """Raise CorruptStateError if entries or states are still to come at the end of a key group, or bytes are left."""
    if entries or states:
        raise CorruptStateError(
            f"{what}: expected {number_of(entries, 'more entry')} and {number_of(states, 'more state')},"
            " found the end of the key group",
            kind="truncated-group",
        )
    if trailing:
        raise CorruptStateError(f"{what}: {number_of(trailing, 'byte')} after its last state", kind="trailing-bytes")


def next_state(raw: bytes, at: int, missing: set[int], what: str) -> tuple[int, int]:
    """Return the state id and the number of entries at ``at``, and remove the id from ``missing``.

    Raise CorruptStateError (``unknown-state-id``, ``bad-count``).
    """
    state_id, count = STATE.unpack_from(raw, at)
    if state_id not in missing:
        raise CorruptStateError(
            f"{what}: state id {state_id} at offset {at}, expected one of {sorted(missing)}",
            kind="unknown-state-id",
            hint="is this a heap stream?",
        )
    if count < 0:
        raise CorruptStateError(f"{what}, state id {state_id}: {count} entries", kind="bad-count")
    missing.remove(state_id)
    return state_id, count


def check_key_group(data: memoryview, span: GroupSpan, what: str) -> None:
    """Raise CorruptStateError (``unexpected-key-group``) unless the key group begins with its number."""
    (number,) = KEY_GROUP.unpack_from(data)
    if number != span.key_group:
        raise unexpected(what, span.key_group, f"found {number} at offset {span.start}")


def _beyond(what: str, entry: int, count: int, end: int) -> CorruptStateError:
    return CorruptStateError(
        f"{what}: entry {entry} of {count} reaches beyond the end at offset {end}", kind="truncated-group"
    )


def unexpected(what: str, key_group: int, problem: str) -> CorruptStateError:
    """Return the error of a key group that is not a heap stream's; ``problem`` describes the bytes there."""
    return CorruptStateError(
        f"{what}: Unexpected key-group in restore: expected key group {key_group}, {problem}",
        kind="unexpected-key-group",
        hint="the handle is that of a heap stream: was the file written as a canonical savepoint?",
    )
