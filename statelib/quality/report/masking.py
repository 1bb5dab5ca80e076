"""Masking of users' text, which a library's templates write into pages without escaping it.

Every character that has a meaning in HTML, templates or Markdown is replaced by a character of Unicode's private use
area, which has no meaning there. When the finished page has been parsed, the original characters are put back.
"""

from typing import Any

from statelib.visible import visible

_FIRST = 0xE000
_MASKED = {
    ord(character): chr(_FIRST + ord(character))
    for character in map(chr, range(0x80))
    if not (character.isalnum() or character in " _-.,:/()+")
}
"""The mask of each ASCII character that is replaced. The others occur in names that the library compares and in
times, which must stay unchanged."""
_UNMASKED = {ord(mask): chr(code) for code, mask in _MASKED.items()}


def masked(value: Any) -> Any:
    """Return a JSON value with all texts masked, including keys. Invisible characters become escapes."""
    if isinstance(value, str):
        return visible(value, lines=True).translate(_MASKED)
    if isinstance(value, dict):
        return {masked(key): masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return value


def unmasked(text: str) -> str:
    """Return the text with masked characters put back. Invisible characters stay escapes."""
    return text.translate(_UNMASKED)
