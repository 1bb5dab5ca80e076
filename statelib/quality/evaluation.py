"""The evaluation of the gate's own rules: equal, at most, allowed. The rules of users need a library
(:mod:`statelib.quality.validation`)."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from statelib.model.amounts import amount
from statelib.model.quality import QualityResult
from statelib.quality.report.pages import page, text
from statelib.quality.rules import AllowedValues, AtMost, Check, Equal, FoundRow, Frame, Library, Unanswerable
from statelib.visible import visible

MOST_SENTENCES = 10
"""The number of failures of one check that get a sentence each. The others are only counted."""
MOST_ROWS = 1_000
"""The most rows of one check that a page of the report shows."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The result of one check of a frame. ``rows``: the rows that break its rule, with the columns that matter."""

    result: QualityResult
    rows: tuple[FoundRow, ...]


def needs_library(frame: Frame) -> bool:
    """Return whether one of the frame's checks is an expectation of Great Expectations."""
    return any(isinstance(check.rule, Library) for check in frame.checks)


def evaluate(frame: Frame) -> list[Evaluation]:
    """Return the results of the checks of a frame, none of which needs the library."""
    return [_evaluate(frame, check) for check in frame.checks]


def unanswered(frame: Frame, check: Check, rule: Unanswerable) -> QualityResult:
    """Return the result of a check that cannot be evaluated: it fails."""
    return QualityResult(frame.name, check.name, check.severity, False, 0, 0, (rule.reason, *frame.notes))


def _shortened(check: Check, rows: Iterable[FoundRow]) -> list[str]:
    """Return the problems as sentences, at most :data:`MOST_SENTENCES` and a sentence that counts the others."""
    sentences = list(_sentences(check, rows))
    if len(sentences) > MOST_SENTENCES:
        more = f"{check.name}: {amount(len(sentences) - MOST_SENTENCES, 'more failure')} in the report"
        return [*sentences[:MOST_SENTENCES], more]
    return sentences


def write_page(directory: Path, frame: Frame, evaluations: Iterable[Evaluation]) -> None:
    """Write the page of a frame below ``directory``, the directory of the report."""
    parts = [_section(evaluation) for evaluation in evaluations]
    notes = "".join(f"<li>{text(visible(note))}</li>" for note in frame.notes)
    place = directory / "validations" / frame.name
    place.mkdir(parents=True)
    body = f'<p><a href="../../index.html">Report</a></p><h1>{text(frame.name)}</h1>{"".join(parts)}'
    (place / "result.html").write_text(page(frame.name, body + (f"<ul>{notes}</ul>" if notes else "")), "utf-8")


def _evaluate(frame: Frame, check: Check) -> Evaluation:
    if isinstance(check.rule, Unanswerable):
        return Evaluation(unanswered(frame, check, check.rule), ())
    wrong = np.flatnonzero(_breaks(frame, check.rule))
    rows = _rows(frame, check.rule, wrong) if len(wrong) else ()
    sentences = (*(_shortened(check, rows) if rows else ()), *frame.notes)
    checked = (frame.name, check.name, check.severity, not rows, len(frame.table), len(rows))
    return Evaluation(QualityResult(*checked, tuple(sentences)), rows)


def _rows(frame: Frame, rule: object, places: npt.NDArray[np.intp]) -> tuple[FoundRow, ...]:
    """Return the rows at these places, with the frame's keys and the columns of the rule."""
    columns = [*frame.keys, *(name for name in _columns(rule) if name not in frame.keys)]
    table = frame.table[columns].iloc[places]
    return tuple(dict(zip(columns, row, strict=True)) for row in table.itertuples(index=False))


def _columns(rule: object) -> tuple[str, ...]:
    match rule:
        case Equal(expected, actual):
            return (expected, actual)
        case AtMost(column, limit):
            return (limit, column)
        case AllowedValues(column, _):
            return (column,)
    raise AssertionError(f"{rule} is not a rule of the gate's own")


def _breaks(frame: Frame, rule: object) -> npt.NDArray[np.bool_]:
    """Return which rows of the frame break the rule."""
    table: Any = frame.table
    match rule:
        case Equal(expected, actual):
            left, right = table[expected], table[actual]
            broken = left.notna() & right.notna() & (left != right)
        case AtMost(column, limit):
            broken = ~(table[column] <= table[limit])
        case AllowedValues(column, values):
            broken = table[column].notna() & ~table[column].isin(list(values))
        case _:
            raise AssertionError(f"{rule} is not a rule of the gate's own")
    return np.asarray(broken, np.bool_)


def _sentences(check: Check, rows: Iterable[FoundRow]) -> Iterable[str]:
    """Yield one sentence per row. Adjacent key groups of a state with the same failure share one sentence."""
    runs: list[tuple[str, int, int, str]] = []
    for row in rows:
        state, failure = str(row.get("state", "")), check.describe(row)
        group = int(str(row.get("key_group", -1)))
        last = runs[-1] if runs else None
        if last and group >= 0 and (last[0], last[2], last[3]) == (state, group - 1, failure):
            runs[-1] = (state, last[1], group, failure)
        else:
            runs.append((state, group, group, failure))
    for state, first, final, failure in runs:
        about = [f"state {state}"] if state else []
        if first >= 0:
            about.append(f"key group {first}" if first == final else f"key groups {first}-{final}")
        yield f"{', '.join(about)}: {failure}" if about else failure


def _section(evaluation: Evaluation) -> str:
    """Return one check as HTML: its result, and a table of the rows that break its rule."""
    result, rows = evaluation.result, evaluation.rows
    mark = '<strong class="good">passed</strong>' if result.passed else '<strong class="bad">failed</strong>'
    head = f"<h2>{text(result.name)}: {mark}</h2><p>{result.failed} of {amount(result.checked, 'row')} failed.</p>"
    if not rows:
        return head
    names = "".join(f"<th>{text(name)}</th>" for name in rows[0])
    cells = ("".join(f"<td>{text(visible(str(value)))}</td>" for value in row.values()) for row in rows[:MOST_ROWS])
    more = f"<p>and {amount(len(rows) - MOST_ROWS, 'more row')}</p>" if len(rows) > MOST_ROWS else ""
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"{head}<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>{more}"
