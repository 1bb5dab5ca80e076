"""Typed JSON of one value: the form of the functions that read it, and the parts that several types share.

Source: docs/spec/formats.md#serializer-snapshots.
"""

from collections.abc import Callable
from typing import Any

from statelib.model.types import StateType
from statelib.wire.json_text import json_text
from statelib.wire.reader import Reader

Json = dict[str, Any]
ReadJson = Callable[[Reader], Json]
"""Reads one value from the reader's offset to its end and returns it as typed JSON."""
ReaderOf = Callable[[StateType], ReadJson]
"""Returns the reader of a type. It is how a type with parts gets the readers of its parts."""

NULL: Json = {"type": "null"}
ROW_KINDS = ("+I", "-U", "+U", "-D")
"""The short names of the kinds of a row: INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE."""


def read_sequence(name: str, element: ReadJson, reader: Reader) -> Json:
    """Read a count and that many elements. ``name`` is the name of the type in JSON."""
    return {"type": name, "v": [element(reader) for _ in range(reader.count(1))]}


def read_flagged(null_flag: bool, value: ReadJson, reader: Reader) -> Json:
    """Read a flag, and the value if there is one. ``null_flag`` is the flag of a null."""
    return NULL if reader.bool() is null_flag else value(reader)


def text_order(value: object) -> bytes:
    """Return the key by which JSON values are sorted: their text in the order of Java, by units of UTF-16."""
    return json_text(value).encode("utf-16-be", "surrogatepass")
