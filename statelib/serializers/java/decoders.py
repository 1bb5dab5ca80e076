"""Decoders that a user registers for values that only the user's own classes can read."""

from collections.abc import Callable
from typing import Any

from statelib.model.types import Opaque
from statelib.wire.reader import Reader

Decode = Callable[[Reader], Any]
"""Reads one value from the reader's offset to its end and returns it in the types of JSON."""

_DECODERS: dict[str, Decode] = {}


def register_decoder(class_name: str, decode: Decode) -> None:
    """Register a function that reads the values of a Java class, or all values that a serializer writes.

    ``class_name``: the class of the value, such as ``java.util.UUID``, or of the serializer. A decoder of the value's
    class comes before one of the serializer's.
    ``decode`` takes exactly the bytes of one value from the reader (big-endian ``i32``, ``i64``, ``utf``, ``take``)
    and returns the value that typed JSON shows as ``{"type": "decoded", "class": ..., "v": ...}``. It replaces a
    decoder that was registered before under this name."""
    _DECODERS[class_name] = decode


def decoder_of(kind: Opaque) -> Decode | None:
    """Return the decoder for values of the type, or None if they stay bytes."""
    return _DECODERS.get(kind.java_class) or _DECODERS.get(kind.serializer)


def unregister_decoder(class_name: str) -> None:
    """Remove the decoder of a class, if one is registered: values of the class are bytes again."""
    _DECODERS.pop(class_name, None)
