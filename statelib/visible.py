"""Text as people see it: characters that a terminal obeys or that nobody can see are written as escapes.

Names, notes, paths and values come from events, storage and users. A control character among them moves a terminal's
cursor, a bidirectional mark turns the reading order round, an invisible one makes two names look the same.
"""

import re
import unicodedata

_JOINERS = "\u200c\u200d"
"""Invisible, but part of how Persian words and many emoji are written; they change nothing outside their word."""
_HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Categories of Unicode: controls, formats (bidirectional marks are some), surrogates, private use, not assigned, and
the two separators that break lines."""


def visible(text: str, *, lines: bool = False) -> str:
    """Return ``text`` with each hidden character as Python writes it in a literal; ``lines``: line feeds stay.

    What is printable already is returned as it is, so that to call it twice changes nothing."""
    if text.isprintable():
        return text
    return "".join(_escaped(c) if is_hidden(c) and not (lines and c == "\n") else c for c in text)


def as_markdown(text: str) -> str:
    """Return one line of Markdown that reads as ``text``: no link, picture, element or code begins in it."""
    return _MARKDOWN.sub(r"\\\g<0>", visible(text))


_MARKDOWN = re.compile(r"[\\`*\[\]<>!]")


def as_code(text: str) -> str:
    """Return Markdown that shows ``text`` as code, in which nothing has a meaning, not even an address. No text is a
    space, because code cannot be empty."""
    shown = visible(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    # Markdown takes a space away on both sides, unless there are only spaces.
    return f"{fence} {shown} {fence}" if shown.strip(" ") else f"`{shown or ' '}`"


def is_hidden(character: str) -> bool:
    """Whether a character has no shape of its own, or gives a command; spaces of any width do not count."""
    return unicodedata.category(character) in _HIDDEN and character not in _JOINERS


def visible_json(document: str) -> str:
    """Return a JSON document whose strings hold no hidden character: each is written as JSON's own escape.

    A parser reads exactly what it would have read; line feeds between the values stay."""
    return document if document.isprintable() else _NOT_ASCII.sub(_json_escape, document)


_NOT_ASCII = re.compile("[^\n\x20-\x7e]")


def _json_escape(match: re.Match[str]) -> str:
    character = match[0]
    if not is_hidden(character):
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
