"""Decoders that users bring along, for values that only their own classes can read."""

from collections.abc import Callable
from typing import Any

from statelib.model.types import Opaque
from statelib.wire.reader import Reader

Decode = Callable[[Reader], Any]
"""Reads one value from where the reader stands to its end, and gives it as JSON has it."""

_DECODERS: dict[str, Decode] = {}


def register_decoder(class_name: str, decode: Decode) -> None:
    """Read values of a Java class, or of all classes that a serializer writes, with a function of one's own.

    ``class_name``: of the value, such as ``java.util.UUID``, or of the serializer; that of the value counts first.
    ``decode`` takes exactly the bytes of one value from the reader (big-endian ``i32``, ``i64``, ``utf``, ``take``)
    and returns what typed JSON shows as ``{"type": "decoded", "class": ..., "v": ...}``. It replaces one that was
    registered before."""
    _DECODERS[class_name] = decode


def decoder_of(kind: Opaque) -> Decode | None:
    """The one that a value of the type is read with, None where it stays bytes."""
    return _DECODERS.get(kind.java_class) or _DECODERS.get(kind.serializer)


def unregister_decoder(class_name: str) -> None:
    """Values of the class are bytes again; one that was never registered is fine."""
    _DECODERS.pop(class_name, None)
