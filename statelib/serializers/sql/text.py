"""The text of a logical type of SQL, as ``str(type)`` writes it, parsed back into the type."""

import re
from collections.abc import Callable

from statelib.errors import InvalidRequestError
from statelib.model.sql import ROWS, TEXTS, LogicalType, SqlField, parameters_problem

_ROOTS = {text: root for root, text in TEXTS.items()}
_HEAD = re.compile(r"\s*([A-Z_]+)\s*(?:\(([^()]*)\))?\s*")
_NOT_NULL = re.compile(r"\s*NOT\s+NULL\s*")
_NUMBER = re.compile(r"[0-9]{1,10}")
_FIELD = re.compile(r"\s*([^:<>,;]*[^:<>,;\s])\s*:")
_EMPTY = re.compile(r"<\s*>")
_PARTS = {"ARRAY": 1, "MULTISET": 1, "MAP": 2}
MAX_DEPTH = 64

Fail = Callable[[int, str], InvalidRequestError]


def parse_logical(text: str, at: int, fail: Fail, depth: int = 0) -> tuple[LogicalType, int]:
    """Return the type whose text begins at ``at``, and the index after it. ``fail`` makes the error for an index and
    for what was expected at it."""
    head = _HEAD.match(text, at)
    if head is None or head[1] not in _ROOTS or depth > MAX_DEPTH:
        raise fail(at, f"one of {', '.join(_ROOTS)}")
    root, at = _ROOTS[head[1]], head.end()
    words = [word.strip() for word in head[2].split(",")] if head[2] else []
    numbers = tuple(int(word) for word in words if _NUMBER.fullmatch(word))
    variant = "".join(word for word in words if not _NUMBER.fullmatch(word))
    parts: tuple[SqlField, ...] = ()
    if root in ROWS or root in _PARTS:
        parts, at = parse_fields(text, at, fail, named=root in ROWS, depth=depth)
        if len(parts) != _PARTS.get(root, len(parts)):
            raise fail(at, f"{_PARTS[root]} types in {root}<...>")
    problem = parameters_problem(root, numbers)
    if problem:
        raise fail(at, problem[0])
    end = _NOT_NULL.match(text, at)
    return LogicalType(root, end is None, numbers, variant, parts), end.end() if end else at


def parse_fields(text: str, at: int, fail: Fail, *, named: bool, depth: int = 0) -> tuple[tuple[SqlField, ...], int]:
    """Return the parts in ``<name: TYPE, ...>`` (if ``named``) or ``<TYPE, ...>``, and the index after them. A row may
    have no field at all: ``<>``."""
    if text[at : at + 1] != "<":
        raise fail(at, "'<'")
    empty = _EMPTY.match(text, at) if named else None
    if empty:
        return (), empty.end()
    parts: list[SqlField] = []
    while not parts or text[at : at + 1] == ",":
        at += 1
        name = _FIELD.match(text, at) if named else None
        if named and name is None:
            raise fail(at, "a field as 'name: TYPE'")
        type_, at = parse_logical(text, name.end() if name else at, fail, depth + 1)
        parts.append(SqlField(name[1] if name else "", type_))
    if text[at : at + 1] != ">":
        raise fail(at, "'>'")
    return tuple(parts), at + 1
