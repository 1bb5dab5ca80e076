"""The text of a type, as ``str(type)`` writes it, read back."""

import re
from collections.abc import Callable

from statelib.errors import InvalidRequestError
from statelib.model.sql import LogicalType
from statelib.model.types import (
    JAVA_SCALARS,
    SCALARS,
    STRING_VALUE,
    WINDOWS,
    ArrayOf,
    Either,
    Enumeration,
    Field,
    Like,
    ListOf,
    MapOf,
    Nullable,
    ObjectArray,
    OneOf,
    Opaque,
    Pojo,
    Row,
    Scalar,
    SetOf,
    Sql,
    StateType,
    Ttl,
    Tuple,
)
from statelib.serializers.sql.text import parse_fields, parse_logical

MAX_DEPTH = 64
_WORD = re.compile(r"\s*([a-z]+)\s*")
_NAME = re.compile(r"\s*([^<>,;:\s]+)\s*")
_PADDING = re.compile(r"[0-9]{1,6}")
_TAG = re.compile(r"[0-9]{1,2}")
_FIELD = re.compile(r"\s*([^:<>,]*[^:<>,\s])\s*:")


def parse_type(text: str) -> StateType:
    """The type that ``text`` stands for: ``parse_type(str(t)) == t``. Blanks do not matter; field
    names hold no ``: < > ,``.

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
        if name in _WORDS:
            return _WORDS[name]
        if name not in _COMPOSED or depth == MAX_DEPTH:
            self.at = start
            raise self.error(f"one of {', '.join((*_WORDS, *_COMPOSED))}, at most {MAX_DEPTH} deep")
        if name in _SQL:
            return self.sql(name)
        if name in _CLASSES:
            return self.java(name, depth)
        if name == "row":
            return Row(tuple(self.parts(depth, named=True)))
        if name == "oneof":
            return self.one_of(depth)
        parts = [field.type for field in self.parts(depth, named=False)]
        if _PARTS[name] not in (None, len(parts)):
            raise self.error(f"{_PARTS[name]} types in {name}<...>")
        return self.build(name, parts)

    def build(self, name: str, parts: list[StateType]) -> StateType:
        if name == "array":
            if not isinstance(parts[0], Scalar):
                raise self.error("a scalar in array<...>")
            return ArrayOf(parts[0])
        if name == "ttl":
            return Ttl(parts[0])
        if name in _SINGLE:
            return _SINGLE[name](parts[0])
        if name == "either":
            return Either(parts[0], parts[1])
        return MapOf(parts[0], parts[1]) if name == "map" else Tuple(tuple(parts))

    def java(self, name: str, depth: int) -> StateType:
        """Types that begin with the name of something of Java's: its class, or how a null is padded."""
        self.expect("<")
        first: StateType | None = self.type(depth + 1) if name == "nullable" else None
        java_class = "" if first else self.name()
        found: StateType
        if name == "pojo":
            found = self.pojo(java_class, depth)
        elif first:
            found = Nullable(first, self.padding() if self.mark(";") else 0)
        elif name == "opaque":
            found = Opaque(java_class, self.name() if self.mark(";") else "")
        else:
            self.expect(";")
            if name in _OF_ONE:
                found = _OF_ONE[name](java_class, self.type(depth + 1))
            else:
                found = Enumeration(java_class, tuple(self.names()))
        self.close()
        return found

    def one_of(self, depth: int) -> OneOf:
        start, cases = self.at, self.parts(depth, named=True)
        if not all(_TAG.fullmatch(case.name) for case in cases):
            self.at = start
            raise self.error("a byte in front of each type")
        return OneOf(tuple((int(case.name), case.type) for case in cases))

    def padding(self) -> int:
        start, text = self.at, self.name()
        if not _PADDING.fullmatch(text):
            self.at = start
            raise self.error("the size of a padding")
        return int(text)

    def sql(self, name: str) -> Sql:
        if name == "rowdata":
            fields, self.at = parse_fields(self.text, self.at, self.fail, named=True)
            self.blanks()
            return Sql(LogicalType("ROW", parts=fields))
        self.expect("<")
        type_, self.at = parse_logical(self.text, self.at, self.fail)
        self.close()
        return Sql(type_)

    def fail(self, at: int, expected: str) -> InvalidRequestError:
        self.at = at
        return self.error(expected)

    def pojo(self, java_class: str, depth: int) -> Pojo:
        """Fields, then subclasses: ``; +`` a registered one, ``; -`` one that was seen."""
        self.expect(";")
        fields = [] if self.text[self.at : self.at + 1] in (";", ">") else self.fields(depth)
        subclasses: dict[str, list[Pojo]] = {"+": [], "-": []}
        while self.mark(";"):
            self.blanks()
            sign = self.text[self.at : self.at + 1]
            if sign not in ("+", "-"):
                raise self.error("+ or - and a subclass")
            self.at += 1
            subclass = self.type(depth + 1)
            if not isinstance(subclass, Pojo):
                raise self.error("a pojo as a subclass")
            subclasses[sign].append(subclass)
        return Pojo(java_class, tuple(fields), tuple(subclasses["+"]), tuple(subclasses["-"]))

    def fields(self, depth: int) -> list[Field]:
        found = [self.part(depth, named=True)]
        while self.mark(","):
            found.append(self.part(depth, named=True))
        return found

    def names(self) -> list[str]:
        found = [self.name()]
        while self.mark(","):
            found.append(self.name())
        return found

    def name(self) -> str:
        match = _NAME.match(self.text, self.at)
        if match is None:
            raise self.error("a name")
        self.at = match.end()
        return match[1]

    def parts(self, depth: int, *, named: bool) -> list[Field]:
        """What stands between < and >, separated by commas."""
        self.expect("<")
        found = [self.part(depth, named)]
        while self.mark(","):
            found.append(self.part(depth, named))
        self.close()
        return found

    def close(self) -> None:
        self.expect(">")
        self.blanks()

    def blanks(self) -> None:
        self.at += len(self.text[self.at :]) - len(self.text[self.at :].lstrip())

    def mark(self, mark: str) -> bool:
        """Past ``mark`` if it comes next."""
        there = self.text[self.at : self.at + 1] == mark
        self.at += there
        return there

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


_WORDS = SCALARS | JAVA_SCALARS | WINDOWS | {STRING_VALUE.name: STRING_VALUE}
_PARTS: dict[str, int | None] = {
    "array": 1, "list": 1, "ttl": 1, "set": 1, "map": 2, "either": 2, "tuple": None, "row": None,
    "oneof": None,
}  # fmt: skip
"""Types with parts, and how many of them."""
_CLASSES = ("nullable", "objects", "enum", "pojo", "opaque", "like")
_OF_ONE: dict[str, Callable[[str, StateType], StateType]] = {
    "objects": ObjectArray, "like": lambda serializer, form: Like(form, serializer),
}  # fmt: skip
"""A class, and the type within."""
_SQL = ("rowdata", "sql")
_COMPOSED = (*_PARTS, *_CLASSES, *_SQL)
_SINGLE: dict[str, type[ListOf] | type[SetOf]] = {"list": ListOf, "set": SetOf}
