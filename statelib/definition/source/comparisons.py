"""Comparisons of a condition in SQL with the bounds of an interval, in one plain form.

This is no parser of SQL: what is not recognised stays as it is."""

import re
from collections.abc import Callable

DAY = "\0"
"""The mark before a column whose date is compared."""
OPERATORS = "<=>|<=|>=|<>|!=|=|<|>"
"""The operators of comparisons."""
TEMPLATE = r"[^'\"{}]*\{(?:start|end)(?::[^{}]*)?\}[^'\"{}]*"
"""The template of a bound."""
BOUND = rf"['\"]{TEMPLATE}['\"]"
"""A text that consists of a bound."""
_NAME = r"[\w.`]+"
_TIME = r"date|timestamp\w*"
_MIRRORED = {"<=": ">=", ">=": "<=", "<": ">", ">": "<"}
_PLAINER: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (rf"\b(?:try_)?cast\s*\(\s*({BOUND})\s+as\s+({_TIME})\s*\)", r"\2 \1"),
    (rf"({BOUND})\s*::\s*({_TIME})", r"\2 \1"),
    (rf"\b(?:try_)?(?:to_)?({_TIME})\s*\(\s*({BOUND})\s*(?:,[^()]*)?\)", r"\1 \2"),
    (rf"(?<!\w)\(\s*((?:(?:{_TIME})\s*)?{BOUND})\s*\)", r"\1"),
    (rf"(?<![\w`])\(\s*({_NAME})\s*\)", r"\1"),
    (rf"\b(?:try_)?(?:to_)?date\s*\(\s*({_NAME})\s*\)", rf"{DAY}\1"),
    (rf"\b(?:try_)?cast\s*\(\s*({_NAME})\s+as\s+date\s*\)", rf"{DAY}\1"),
    (rf"(?<![\w.`])({_NAME})\s*::\s*date\b", rf"{DAY}\1"),
    (rf"\bdate_format\s*\(\s*({_NAME})\s*,\s*['\"][yMd/-]+['\"]\s*\)", rf"{DAY}\1"),
    (
        rf"((?:\b(?:{_TIME})\s*)?{BOUND})\s*({OPERATORS})\s*({DAY}?{_NAME})(?!\s*\()",
        lambda match: f"{match[3]} {_MIRRORED.get(match[2], match[2])} {match[1]}",
    ),
)


def plain_comparisons(condition: str) -> str:
    """Return a condition in which comparisons with a bound have the column on the left, and the bound without casts and
    parentheses: ``at <= TIMESTAMP '{end}'`` for ``CAST('{end}' AS TIMESTAMP) >= (at)``. A column of which the date is
    taken is written as the column after :data:`DAY`."""
    for form, plainer in _PLAINER:
        condition = re.sub(form, plainer, condition, flags=re.IGNORECASE)
    return condition
