"""Steps over one serialized value at a time, for streams in which only decoding shows where an entry ends.

A codec moves columns and needs the start of every value at once. In a stream of entries without lengths, the starts are
found one by one. These functions do that with as little Python as possible. They check nothing but bounds, because a
codec reads and checks the values afterwards.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from statelib.serializers.columns.codec import Codec

Skipper = Callable[[bytes, int], int]
"""Returns the offset after the value that begins at an offset. The result may lie beyond the end of the bytes. Raises
IndexError or struct.error if the bytes end before it can be computed."""
Step = int | Skipper
"""A width in bytes, or a skipper for a part whose width varies."""
StepsOf = Callable[[Codec], list[Step]]
"""Returns the steps of a codec. It is how a codec with parts gets the steps of its parts."""
_U32 = struct.Struct(">I")


@runtime_checkable
class Stepped(Protocol):
    """A codec that provides its own steps. The values of another codec are skipped by its ``skip``, which is slow."""

    def steps(self, steps_of: StepsOf) -> list[Step]:
        """Return the steps over one value. It is not called if the codec's width is fixed."""


def chain(steps: Sequence[Step]) -> Skipper:
    """Return one skipper over all steps. Widths that follow each other become one addition."""
    skippers: list[tuple[int, Skipper]] = []
    width = 0
    for step in steps:
        if isinstance(step, int):
            width += step
        else:
            skippers.append((width, step))
            width = 0
    if not skippers:
        return lambda raw, at: at + width  # noqa: ARG005 - the form of a skipper
    if len(skippers) == 1:
        ((before, single),) = skippers
        return lambda raw, at: single(raw, at + before) + width

    def several(raw: bytes, at: int) -> int:
        for before, skip in skippers:
            at = skip(raw, at + before)
        return at + width

    return several


def counted_widths(width: int) -> Skipper:
    """Return a skipper over a count and that many elements of ``width`` bytes."""

    def skip(raw: bytes, at: int) -> int:
        (count,) = _U32.unpack_from(raw, at)
        return at + 4 + int(count) * width

    return skip


def counted_elements(element: Skipper) -> Skipper:
    """Return a skipper over a count and that many elements."""

    def skip(raw: bytes, at: int) -> int:
        (count,) = _U32.unpack_from(raw, at)
        at += 4
        if count > len(raw) - at:  # an element takes one byte or more, or everything that is left
            raise IndexError(at)
        for _ in range(count):
            at = element(raw, at)
            if at > len(raw):
                raise IndexError(at)
        return at

    return skip


def flagged(value: Skipper) -> Skipper:
    """Return a skipper over a flag and, unless the flag is set, a value."""
    return lambda raw, at: at + 1 if raw[at] else value(raw, at + 1)
