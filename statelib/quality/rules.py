"""Rules that rows must keep, as values: the frames of this room are made of them, ``validation`` judges them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pandas as pd

from statelib.model.quality import Severity

FoundRow = Mapping[str, object]


@dataclass(frozen=True)
class Equal:
    """Two columns hold the same in each row, rows without a found value left out."""

    expected: str
    found: str


@dataclass(frozen=True)
class AtMost:
    """One column of numbers is nowhere larger than another."""

    column: str
    limit: str


@dataclass(frozen=True)
class OneOf:
    """A column holds nothing but these values."""

    column: str
    values: tuple[str | int, ...]


@dataclass(frozen=True)
class Library:
    """An expectation of Great Expectations' own, by the name of its class, with its parameters."""

    name: str
    parameters: Mapping[str, object]


@dataclass(frozen=True)
class Unanswerable:
    """Nothing that the rows could answer: it does not hold, and ``reason`` says why."""

    reason: str


@dataclass(frozen=True)
class Check:
    """An expectation: its name, its rule, the words for a row that breaks it, and what follows then."""

    name: str
    rule: Equal | AtMost | OneOf | Library | Unanswerable
    say: Callable[[FoundRow], str]
    severity: Severity = Severity.FAIL


@dataclass(frozen=True, eq=False)
class Frame:
    """Rows to judge. ``keys`` are the columns that say which thing a row is about. ``notes``: what is to be known of
    the rows, such as that they are a sample."""

    name: str
    keys: tuple[str, ...]
    table: pd.DataFrame
    checks: tuple[Check, ...]
    notes: tuple[str, ...] = field(default=())
