"""Declared JSON: a codec reads and writes one kind of JSON value, a :class:`Record` lists the fields of an object.

Reading checks the type of each value. An error is a ValueError with the path of the value, what was expected and what
was found, such as ``manifest.files[2].crc32c: expected int, found list``.
"""

import base64
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

import numpy as np

from statelib.model.ids import MAX_NUMBER
from statelib.model.key_groups import MAX_MAX_PARALLELISM, KeyGroupRange

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999
_SHOWN_CHARACTERS = 60
REQUIRED: Final = object()
"""The ``missing`` of a field that every manifest has."""


class JsonCodec(Protocol[T]):
    """Converts one kind of JSON value. ``where`` is the path of the value in errors."""

    def read(self, content: object, where: str) -> T:
        """Return the value that ``content``, parsed JSON, stands for. Raises ValueError."""
        ...

    def write(self, value: T) -> object:
        """Return the value as ``json`` writes it; inverse of :meth:`read`."""
        ...


@dataclass(frozen=True)
class JsonField:
    """One field of a JSON object.

    ``attribute``: the name of the value in Python if it is another than in JSON. ``missing``: the value if an older
    manifest has no such field. ``sparse``: the field is not written if it has that value. ``get``: the function that
    returns the value of an object to write, by default its attribute."""

    name: str
    codec: JsonCodec[Any]
    attribute: str = ""
    missing: object = REQUIRED
    sparse: bool = False
    get: Callable[[Any], object] | None = None

    @property
    def argument(self) -> str:
        """The name of the value in Python."""
        return self.attribute or self.name

    def read(self, content: dict[str, object], where: str) -> object:
        """Return the value of the field in an object."""
        if self.name in content:
            return self.codec.read(content[self.name], f"{where}.{self.name}")
        if self.missing is REQUIRED:
            raise ValueError(f"{where}.{self.name}: missing")
        return self.missing

    def value(self, owner: object) -> Any:
        """Return the value to write."""
        return getattr(owner, self.argument) if self.get is None else self.get(owner)


class Record(Generic[T]):
    """The codec of a JSON object. ``make`` is called with the values of all fields by name; a class, or a function that
    checks whether the values fit together and raises ValueError otherwise. Unknown fields are ignored."""

    def __init__(self, make: Callable[..., T], *fields: JsonField) -> None:
        self._make = make
        self.fields = fields

    def read(self, content: object, where: str) -> T:
        owner = _object_of(content, where)
        values = {field.argument: field.read(owner, where) for field in self.fields}
        try:
            return self._make(**values)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error

    def write(self, value: T) -> dict[str, object]:
        written = [(field, field.value(value)) for field in self.fields]
        return {field.name: field.codec.write(v) for field, v in written if not (field.sparse and v == field.missing)}


@dataclass(frozen=True)
class TwoForms(Generic[T]):
    """The codec of an object with one of two forms. An object with the field ``marker`` has the form ``marked``.
    ``is_marked`` returns whether a value is written in that form."""

    marker: str
    marked: Record[T]
    other: Record[T]
    is_marked: Callable[[T], bool]

    def read(self, content: object, where: str) -> T:
        return (self.marked if self.marker in _object_of(content, where) else self.other).read(content, where)

    def write(self, value: T) -> object:
        return (self.marked if self.is_marked(value) else self.other).write(value)


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Plain(Generic[T]):
    """The codec that two functions make."""

    read: Callable[[object, str], T]
    write: Callable[[T], object] = _as_it_is


def wrong(where: str, expected: str, actual: object) -> ValueError:
    """Return the error of a value that is not what was expected."""
    shown = type(actual).__name__ if isinstance(actual, list | dict) else repr(actual)
    cut = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}..."
    return ValueError(f"{where}: expected {expected}, found {cut}")


def _object_of(content: object, where: str) -> dict[str, object]:
    """Return ``content`` if it is a JSON object."""
    if not isinstance(content, dict):
        raise wrong(where, "an object", content)
    return content


def _typed(kind: type[T]) -> Callable[[object, str], T]:
    def read(content: object, where: str) -> T:
        if not isinstance(content, kind):
            raise wrong(where, kind.__name__, content)
        return content

    return read


_list_of = _typed(list)
_integer_of = _typed(int)


def _read_integer(content: object, where: str) -> int:
    number = _integer_of(content, where)
    if isinstance(content, bool) or not -(2**63) <= number < 2**63:
        raise wrong(where, "a number of 64 bits", content)
    return number


def within(first: int, last: int, expected: str) -> Plain[int]:
    """Return the codec of an integer from ``first`` to ``last``, both included."""

    def read(content: object, where: str) -> int:
        number = _read_integer(content, where)
        if not first <= number <= last:
            raise wrong(where, expected, number)
        return number

    return Plain(read)


TEXT = Plain(_typed(str))
BOOLEAN = Plain(_typed(bool))
FLAG: Plain[bool] = Plain(lambda content, _where: content is True)
"""The codec of a flag that is only written if it is True."""
INTEGER = Plain(_read_integer)
NUMBER = within(0, MAX_NUMBER, f"0 to {MAX_NUMBER}")
"""The codec of an id, an epoch or a generation."""
MOMENT = within(_FIRST_MS, _LAST_MS, "a moment of the years 1 to 9999")
"""The codec of epoch milliseconds that people can be shown."""


def optional(codec: JsonCodec[T]) -> Plain[T | None]:
    """Return the codec of a value that may be null."""
    return Plain(
        lambda content, where: None if content is None else codec.read(content, where),
        lambda value: None if value is None else codec.write(value),
    )


def listed(codec: JsonCodec[T]) -> Plain[tuple[T, ...]]:
    """Return the codec of a list of values of one kind."""

    def read(content: object, where: str) -> tuple[T, ...]:
        return tuple(codec.read(item, f"{where}[{i}]") for i, item in enumerate(_list_of(content, where)))

    return Plain(read, lambda values: [codec.write(value) for value in values])


def parsed(parse: Callable[[str], T], text: Callable[[T], str] = str) -> Plain[T]:
    """Return the codec of a value that is written as text. ``parse`` raises ValueError or a StatelibError."""
    return Plain(lambda content, where: parse(TEXT.read(content, where)), text)


def one_of(choices: type[E]) -> Plain[E]:
    """Return the codec of a member of an enumeration, which is written as its value."""

    def read(content: object, where: str) -> E:
        text = TEXT.read(content, where)
        if text not in {choice.value for choice in choices}:
            raise wrong(where, f"one of {', '.join(choices)}", text)
        return choices(text)

    return Plain(read, lambda choice: choice.value)


def _all_of(expected: str, *kinds: type) -> Callable[[object, str], list[Any]]:
    def read(content: object, where: str) -> list[Any]:
        values = _list_of(content, where)
        unexpected = [value for value in values if type(value) not in kinds]
        if unexpected:
            raise wrong(where, expected, unexpected[0])
        return values

    return read


_texts_of, _numbers_of, _two_of = _all_of("texts", str), _all_of("numbers", int, float), _all_of("two numbers", int)
TEXTS: Plain[tuple[str, ...]] = Plain(lambda content, where: tuple(_texts_of(content, where)), list)
NUMBERS: Plain[tuple[float, ...]] = Plain(lambda content, where: tuple(map(float, _numbers_of(content, where))), list)


def _read_pair(content: object, where: str) -> tuple[int, int]:
    numbers = _two_of(content, where)
    if len(numbers) != 2:
        raise wrong(where, "two numbers", f"{len(numbers)} of them")
    return numbers[0], numbers[1]


def _read_key_groups(content: object, where: str) -> KeyGroupRange:
    first, last = _read_pair(content, where)
    if not -1 <= last < MAX_MAX_PARALLELISM:
        raise wrong(where, f"key groups below {MAX_MAX_PARALLELISM}", last)
    return KeyGroupRange(first, last)


def _read_sizes(content: object, where: str) -> tuple[int, int]:
    pair = _read_pair(content, where)
    if min(pair) < 0:
        raise wrong(where, "two numbers from 0", min(pair))
    return pair


KEY_GROUPS = Plain(_read_key_groups, lambda key_groups: [key_groups.start, key_groups.end])
SIZES = Plain(_read_sizes, list)
"""The codec of two numbers from 0."""


def _read_named_integers(content: object, where: str) -> tuple[tuple[str, int], ...]:
    return tuple((name, _read_integer(value, f"{where}.{name}")) for name, value in _object_of(content, where).items())


NAMED_INTEGERS = Plain(_read_named_integers, dict)
"""The codec of (name, number) pairs, which are written as an object."""


def _read_bytes(content: object, where: str) -> bytes:
    text = TEXT.read(content, where)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise wrong(where, "base64", text) from None


BYTES = Plain(_read_bytes, lambda data: base64.b64encode(data).decode("ascii"))


def array_of(stored: str, kind: type[np.generic]) -> Plain[Any]:
    """Return the codec of an array, which is written as base64 of its elements in the type ``stored``."""
    return Plain(
        lambda content, where: np.frombuffer(BYTES.read(content, where), stored).astype(kind),
        lambda array: BYTES.write(array.astype(stored).tobytes()),
    )
