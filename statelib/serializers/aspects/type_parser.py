"""The parser of the text of a type. It imports no Arrow."""

import re
from collections.abc import Callable, Mapping

from statelib.errors import InvalidRequestError
from statelib.model.types import Field, Scalar, StateType

MAX_DEPTH = 64
_WORD = re.compile(r"\s*([a-z]+)\s*")
_NAME = re.compile(r"\s*([^<>,;:\s]+)\s*")
_FIELD = re.compile(r"\s*([^:<>,]*[^:<>,\s])\s*:")

ParseType = Callable[["TypeParser"], StateType]
"""Parses the rest of a type whose first word has been read."""


class TypeParser:
    """Recursive descent over ``text``. ``at`` is the index of the next character.

    ``words``: per first word of a type the scalar that it names, or the function that parses the rest. Each method
    moves ``at`` past the text that it reads, and raises InvalidRequestError (``bad-type-text``) if the text does not
    go on as it must."""

    def __init__(self, text: str, words: Mapping[str, Scalar | ParseType]) -> None:
        self.text = text
        self.at = 0
        self._words = words
        self._depth = 0

    def type(self) -> StateType:
        """Return the type that begins here."""
        start, name = self.at, self._match(_WORD, "a type")
        entry = self._words.get(name)
        if isinstance(entry, Scalar):
            return entry
        if entry is None or self._depth == MAX_DEPTH:
            self.at = start
            raise self.error(f"one of {', '.join(self._words)}, at most {MAX_DEPTH} deep")
        self._depth += 1
        parsed = entry(self)
        self._depth -= 1
        return parsed

    def parts(self, word: str, count: int | None = None) -> list[StateType]:
        """Return the types between < and >, ``count`` of them or any number. ``word`` names the type in errors."""
        self.expect("<")
        types = [self.type()]
        while self.skip(","):
            types.append(self.type())
        self.close()
        if count not in (None, len(types)):
            raise self.error(f"{count} types in {word}<...>")
        return types

    def named_parts(self) -> list[Field]:
        """Return the fields, ``name: type``, between < and >."""
        self.expect("<")
        fields = self.fields()
        self.close()
        return fields

    def fields(self) -> list[Field]:
        """Return one or more fields, ``name: type``, with commas between them."""
        fields = [self._field()]
        while self.skip(","):
            fields.append(self._field())
        return fields

    def names(self) -> list[str]:
        """Return one or more names with commas between them."""
        names = [self.name()]
        while self.skip(","):
            names.append(self.name())
        return names

    def name(self) -> str:
        """Return a name, such as that of a Java class."""
        return self._match(_NAME, "a name")

    def open_class(self) -> str:
        """Return the name of a Java class behind <, and move past the semicolon after it."""
        self.expect("<")
        java_class = self.name()
        self.expect(";")
        return java_class

    def close(self) -> None:
        """Move past > and blanks after it."""
        self.expect(">")
        self.blanks()

    def blanks(self) -> None:
        """Move past blanks."""
        self.at += len(self.text[self.at :]) - len(self.text[self.at :].lstrip())

    def next_is(self, *marks: str) -> bool:
        """Return whether the next character is one of ``marks``."""
        return self.text[self.at : self.at + 1] in marks

    def skip(self, mark: str) -> bool:
        """Move past ``mark`` if it comes next. Return whether it did."""
        comes_next = self.next_is(mark)
        self.at += comes_next
        return comes_next

    def expect(self, mark: str) -> None:
        """Move past ``mark``, which must come next."""
        if not self.skip(mark):
            raise self.error(repr(mark))

    def fail(self, at: int, expected: str) -> InvalidRequestError:
        """Return the error for a place in the text and for what was expected at it."""
        self.at = at
        return self.error(expected)

    def error(self, expected: str) -> InvalidRequestError:
        """Return the error for the current place and for what was expected at it."""
        actual = self.text[self.at : self.at + 20] or "the end"
        return InvalidRequestError(
            f"type {self.text[:200]!r} at character {self.at}: expected {expected}, found {actual!r}",
            kind="bad-type-text",
        )

    def _field(self) -> Field:
        name = self._match(_FIELD, "a field as 'name: type'")
        return Field(name, self.type())

    def _match(self, pattern: re.Pattern[str], expected: str) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise self.error(expected)
        self.at = match.end()
        return match[1]
