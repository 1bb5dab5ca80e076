"""Frames of rows and the rules that the rows must keep, as values. The module ``validation`` evaluates them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from statelib.model.quality import Severity

FoundRow = Mapping[str, object]
"""A row that breaks a rule: value by column name."""


@dataclass(frozen=True)
class Equal:
    """The rule that two columns are equal in each row. Rows in which either is missing are left out."""

    expected: str
    actual: str


@dataclass(frozen=True)
class AtMost:
    """The rule that the numbers of one column are never larger than those of another in the same row."""

    column: str
    limit: str


@dataclass(frozen=True)
class AllowedValues:
    """The rule that a column holds only these values."""

    column: str
    values: tuple[str | int, ...]


@dataclass(frozen=True)
class Library:
    """An expectation of Great Expectations, given by the name of its class and its parameters."""

    name: str
    parameters: Mapping[str, object]


@dataclass(frozen=True)
class Unanswerable:
    """A rule that cannot be evaluated with the rows. The check fails with ``reason``."""

    reason: str


@dataclass(frozen=True)
class Check:
    """A check of all rows of a frame. ``describe``: returns the sentence for a row that breaks the rule. ``severity``:
    the consequence if a row breaks it."""

    name: str
    rule: Equal | AtMost | AllowedValues | Library | Unanswerable
    describe: Callable[[FoundRow], str]
    severity: Severity = Severity.FAIL


@dataclass(frozen=True, eq=False)
class Frame:
    """A table of rows and the checks that they must pass. ``keys``: the columns that identify a row. ``notes``: remarks
    on the rows, for example that they are a sample."""

    name: str
    keys: tuple[str, ...]
    table: pd.DataFrame
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = field(default=())
