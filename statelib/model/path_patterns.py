"""Paths with the wildcards of Spark and Hadoop, as texts."""

import re

from statelib.errors import InvalidRequestError

_PLACE = re.compile(r"\A[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?")
"""The scheme and the host of a URI."""
_SPECIAL = re.compile(r"[*?\[\]{}]")
_WILDCARD = re.compile(r"\\.|\[[^\]]+\]|\{[^{}]*\}|.", re.DOTALL)
"""One wildcard of a name, or one of its other characters."""
_OTHER = re.compile(r"[^\w-]")
"""A character without a meaning between brackets."""


def without_host(location: str) -> str:
    """Return a path or URI without its scheme and host."""
    return _PLACE.sub("", location, count=1)


def split_pattern(path: str) -> tuple[str, tuple[str, ...]]:
    """Return the path before the first name with a wildcard, and that name with all names after it."""
    parts = path.split("/")
    first_pattern = next((i for i, part in enumerate(parts) if _SPECIAL.search(part)), len(parts))
    return "/".join(parts[:first_pattern]), tuple(part for part in parts[first_pattern:] if part)


def directory_of_pattern(path: str) -> str | None:
    """Return the directory in which a pattern is searched, None for a path without wildcards."""
    directory, pattern = split_pattern(path)
    return directory.rstrip("/") if pattern else None


def name_expression(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a name with Hadoop's wildcards: ``*``, ``?``, ``[a-c]``, ``[^a]``, ``[!a]`` and
    ``{a,b}``. A backslash takes the next character as it is.

    Raises InvalidRequestError (``bad-wildcard``)."""
    try:
        return re.compile(_translated(pattern), re.DOTALL)
    except re.error as error:
        raise InvalidRequestError(
            f"source: the wildcards of {pattern!r} are wrong ({error}): expected *, ?, [a-c], [^a] or {{a,b}}",
            kind="bad-wildcard",
            hint="write a backslash before a bracket or a brace that is a part of the name",
        ) from error


def _translated(pattern: str) -> str:
    return _WILDCARD.sub(lambda match: _expression(match[0]), pattern)


def _expression(wildcard: str) -> str:
    """Return the regular expression of one wildcard, or of one character of a name."""
    first, inner = wildcard[0], wildcard[1:-1]
    if wildcard in ("*", "?"):
        return {"*": ".*", "?": "."}[wildcard]
    if first == "\\" and len(wildcard) == 2:
        return re.escape(wildcard[1])
    if first == "[" and inner:
        negated = "^" if inner[0] in "!^" else ""
        return f"[{negated}{_OTHER.sub(lambda match: re.escape(match[0]), inner[len(negated) :])}]"
    if first == "{" and len(wildcard) > 1:
        return f"(?:{'|'.join(map(_translated, inner.split(',')))})"
    if first in "[{":
        raise re.error(f"'{first}' has no end")
    return re.escape(wildcard)
