"""The text of a type, as ``str(type)`` writes it, read back."""

import re

from statelib.errors import InvalidRequestError
from statelib.model.types import SCALARS, ArrayOf, Field, ListOf, MapOf, Row, Scalar, StateType, Tuple

MAX_DEPTH = 64
_WORD = re.compile(r"\s*([a-z]+)\s*")
_FIELD = re.compile(r"\s*([^:<>,]*[^:<>,\s])\s*:")


def parse_type(text: str) -> StateType:
    """The type that ``text`` stands for: ``parse_type(str(t)) == t``. Blanks do not matter; field
    names of a row hold no ``: < > ,``.

    Raises InvalidRequestError (``bad-type-text``) naming the text and where it goes wrong."""
    parser = _Parser(text)
    found = parser.type(0)
    if parser.at != len(text):
        raise parser.error("the end")
    return found


class _Parser:
    """Recursive descent over ``text``; ``at`` is the index of the next character."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def type(self, depth: int) -> StateType:
        start, name = self.at, self.word()
        if name in SCALARS:
            return SCALARS[name]
        if name not in _PARTS or depth == MAX_DEPTH:
            self.at = start
            raise self.error(f"one of {', '.join((*SCALARS, *_PARTS))}, at most {MAX_DEPTH} deep")
        if name == "row":
            return Row(tuple(self.parts(depth, named=True)))
        parts = [field.type for field in self.parts(depth, named=False)]
        if _PARTS[name] not in (None, len(parts)):
            raise self.error(f"{_PARTS[name]} types in {name}<...>")
        return self.build(name, parts)

    def build(self, name: str, parts: list[StateType]) -> StateType:
        if name == "array":
            if not isinstance(parts[0], Scalar):
                raise self.error("a scalar in array<...>")
            return ArrayOf(parts[0])
        if name == "list":
            return ListOf(parts[0])
        return MapOf(parts[0], parts[1]) if name == "map" else Tuple(tuple(parts))

    def parts(self, depth: int, *, named: bool) -> list[Field]:
        """What stands between < and >, separated by commas."""
        self.expect("<")
        found = [self.part(depth, named)]
        while self.text[self.at : self.at + 1] == ",":
            self.at += 1
            found.append(self.part(depth, named))
        self.expect(">")
        self.at += len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
        return found

    def part(self, depth: int, named: bool) -> Field:
        name = ""
        if named:
            match = _FIELD.match(self.text, self.at)
            if match is None:
                raise self.error("a field as 'name: type'")
            name, self.at = match[1], match.end()
        return Field(name, self.type(depth + 1))

    def word(self) -> str:
        match = _WORD.match(self.text, self.at)
        if match is None:
            raise self.error("a type")
        self.at = match.end()
        return match[1]

    def expect(self, mark: str) -> None:
        if self.text[self.at : self.at + 1] != mark:
            raise self.error(repr(mark))
        self.at += 1

    def error(self, expected: str) -> InvalidRequestError:
        found = self.text[self.at : self.at + 20] or "the end"
        return InvalidRequestError(
            f"type {self.text[:200]!r} at character {self.at}: expected {expected}, found {found!r}",
            kind="bad-type-text",
        )


_PARTS: dict[str, int | None] = {"array": 1, "list": 1, "map": 2, "tuple": None, "row": None}
"""Types with parts, and how many of them."""
