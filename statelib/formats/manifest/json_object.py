"""A JSON object of the manifest whose fields are read by type, so that each error names the field."""

import base64
from collections.abc import Callable
from typing import TypeVar

from statelib.model.amounts import number_of
from statelib.model.ids import MAX_NUMBER
from statelib.model.key_groups import MAX_MAX_PARALLELISM, KeyGroupRange

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999

T = TypeVar("T")


class JsonObject:
    """A JSON object whose fields are read by type; ``where`` is its path in errors."""

    def __init__(self, content: object, where: str) -> None:
        if not isinstance(content, dict):
            raise ValueError(f"{where}: expected an object")
        self._content = content
        self._where = where

    def has(self, name: str) -> bool:
        return name in self._content

    def value(self, name: str) -> object:
        if name not in self._content:
            raise ValueError(f"{self._where}.{name}: missing")
        return self._content[name]

    def text(self, name: str) -> str:
        return self._typed(name, str)

    def boolean(self, name: str) -> bool:
        return self._typed(name, bool)

    def texts(self, name: str) -> tuple[str, ...]:
        values = self._typed(name, list)
        if not all(isinstance(text, str) for text in values):
            raise ValueError(f"{self._where}.{name}: expected texts")
        return tuple(values)

    def integer(self, name: str) -> int:
        value = self._typed(name, int)
        if isinstance(value, bool) or not -(2**63) <= value < 2**63:
            raise ValueError(f"{self._where}.{name}: expected a number of 64 bits")
        return value

    def number(self, name: str) -> int:
        """Return an id, an epoch or a generation."""
        value = self.integer(name)
        if not 0 <= value <= MAX_NUMBER:
            raise ValueError(f"{self._where}.{name}: expected 0 to {MAX_NUMBER}")
        return value

    def optional_number(self, name: str) -> int | None:
        return self._optional(name, self.number)

    def moment(self, name: str) -> int:
        """Return epoch milliseconds within the years 1 to 9999, which people can be shown."""
        value = self.integer(name)
        if not _FIRST_MS <= value <= _LAST_MS:
            raise ValueError(f"{self._where}.{name}: expected a moment of the years 1 to 9999")
        return value

    def optional_moment(self, name: str) -> int | None:
        return self._optional(name, self.moment)

    def optional_text(self, name: str) -> str | None:
        return self._optional(name, self.text)

    def optional_integer(self, name: str) -> int | None:
        return self._optional(name, self.integer)

    def later_integer(self, name: str) -> int | None:
        """Return an integer, or None if it is null or missing, as in older manifests."""
        return self.optional_integer(name) if self.has(name) else None

    def child(self, name: str) -> "JsonObject":
        return JsonObject(self.value(name), f"{self._where}.{name}")

    def children(self, name: str) -> list["JsonObject"]:
        return [JsonObject(item, f"{self._where}.{name}[{i}]") for i, item in enumerate(self._typed(name, list))]

    def named_integers(self, name: str) -> tuple[tuple[str, int], ...]:
        """Return (name, number) pairs in their order; none if the field is missing, as in older manifests."""
        if name not in self._content:
            return ()
        child = self.child(name)
        return tuple((key, child.integer(key)) for key in child._content)

    def key_groups(self, name: str) -> KeyGroupRange:
        bounds = self._typed(name, list)
        if len(bounds) != 2 or not all(type(bound) is int for bound in bounds):
            raise ValueError(f"{self._where}.{name}: expected two numbers")
        if not -1 <= bounds[1] < MAX_MAX_PARALLELISM:
            raise ValueError(f"{self._where}.{name}: expected key groups below {MAX_MAX_PARALLELISM}")
        return KeyGroupRange(bounds[0], bounds[1])

    def optional_pairs(self, name: str) -> tuple[tuple[int, int] | None, ...]:
        pairs = self._typed(name, list)
        for pair in pairs:
            is_pair = isinstance(pair, list) and len(pair) == 2 and all(type(n) is int and n >= 0 for n in pair)
            if pair is not None and not is_pair:
                raise ValueError(f"{self._where}.{name}: expected pairs of numbers")
        return tuple(None if pair is None else (pair[0], pair[1]) for pair in pairs)

    def numbers(self, name: str) -> tuple[float, ...]:
        values = self._typed(name, list)
        if not all(type(number) in (int, float) for number in values):
            raise ValueError(f"{self._where}.{name}: expected numbers")
        return tuple(map(float, values))

    def packed(self, name: str, size: int) -> bytes:
        """Return the bytes that the base64 text holds. Raise ValueError unless there are exactly ``size`` of them."""
        data = base64.b64decode(self.text(name), validate=True)
        if len(data) != size:
            raise ValueError(f"{self._where}.{name}: {number_of(len(data), 'byte')}, expected {size}")
        return data

    def _typed(self, name: str, kind: type[T]) -> T:
        value = self.value(name)
        if not isinstance(value, kind):
            raise ValueError(f"{self._where}.{name}: expected {kind.__name__}, found {type(value).__name__}")
        return value

    def _optional(self, name: str, read: Callable[[str], T]) -> T | None:
        return None if self.value(name) is None else read(name)
