"""Text of users on its way through the templates of a library that write it into pages as it is.

Every character that could mean something to HTML, to a template or to Markdown travels as one of Unicode's private
use, which mean nothing to any of them, and becomes text again when the finished page has been parsed.
"""

from typing import Any

from statelib.visible import visible

_FIRST = 0xE000
_MASKED = {
    ord(character): chr(_FIRST + ord(character))
    for character in map(chr, range(0x80))
    if not (character.isalnum() or character in " _-.,:/()+")
}
"""The rest of ASCII: the names that the library itself compares, and moments, are left as they are."""
_UNMASKED = {ord(mask): chr(code) for code, mask in _MASKED.items()}


def masked(value: Any) -> Any:
    """Return a JSON value whose texts, keys included, hold no character with a meaning."""
    if isinstance(value, str):
        return visible(value, lines=True).translate(_MASKED)
    if isinstance(value, dict):
        return {masked(key): masked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return value


def unmasked(text: str) -> str:
    """Return the text that was masked, hidden characters written as escapes."""
    return text.translate(_UNMASKED)
