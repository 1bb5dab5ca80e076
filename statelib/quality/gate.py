"""The quality gate, which checks from facts that a checkpoint is complete and as expected, and writes a report."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statelib.errors import InvalidRequestError
from statelib.model.quality import QualityResult, Severity
from statelib.model.record import CheckpointRecord
from statelib.quality.facts import CheckpointFacts, QualityReport

if TYPE_CHECKING:
    from statelib.quality.evaluation import Evaluation
    from statelib.quality.rules import Frame
    from statelib.quality.validation import Validation

__all__ = ["QualityReport", "run_gate"]


def run_gate(facts: CheckpointFacts, docs_directory: str) -> QualityReport:
    """Return the result of checking ``facts``, and write it as static HTML pages.

    ``docs_directory``: absolute path or ``file:`` URI. It is created. If it exists from an earlier run of the
    gate, its pages stay and the new ones are written to ``<docs_directory>-2``, and so on. The verdict does not
    depend on the pages: if they cannot be written, the report's URI is '' and the results contain a warning with the
    reason. Great Expectations is imported, which takes some seconds of CPU, only if the facts have expectations.
    """
    from statelib.quality.frames import frames_of

    judged = _judge(frames_of(facts))
    try:
        uri = _report(judged, facts.record, docs_directory)
    except InvalidRequestError as error:
        return QualityReport("", (*judged.results, _without_report(error)), facts.read_keys)
    return QualityReport(uri, judged.results, facts.read_keys)


@dataclass(frozen=True, eq=False)
class _Judged:
    """The results of all frames, in their order. ``own``: the evaluations of the frames that need no library;
    ``validation``: the library's results for the others, None if there are no others."""

    results: tuple[QualityResult, ...]
    own: "list[tuple[Frame, list[Evaluation]]]"
    validation: "Validation | None"


def _judge(frames: "Sequence[Frame]") -> _Judged:
    from statelib.quality.evaluation import evaluate, needs_library

    own = {frame.name: evaluate(frame) for frame in frames if not needs_library(frame)}
    theirs = [frame for frame in frames if needs_library(frame)]
    results = [evaluation.result for evaluations in own.values() for evaluation in evaluations]
    validation = None
    if theirs:
        from statelib.quality.validation import validate

        validation = validate(theirs)
        results += validation.results
    places = {frame.name: place for place, frame in enumerate(frames)}
    in_order = tuple(sorted(results, key=lambda result: places[result.group]))
    return _Judged(in_order, [(frame, own[frame.name]) for frame in frames if frame.name in own], validation)


def _report(judged: _Judged, record: CheckpointRecord, docs_directory: str) -> str:
    """Write the report and return its URI. A partly written report is removed.

    Raises InvalidRequestError (``report-not-written``) for an error of any type, because a library makes the pages
    from any kind of data."""
    from statelib.quality.evaluation import write_page
    from statelib.quality.report.directory import fresh_directory, make_self_contained, write_index

    directory = None
    try:
        directory = fresh_directory(docs_directory)
        if judged.validation is not None:
            judged.validation.write_pages(str(directory))
            make_self_contained(directory)
        for frame, evaluations in judged.own:
            write_page(directory, frame, evaluations)
        return write_index(directory, record, judged.results, with_library=judged.validation is not None)
    except Exception as error:
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)
        raise InvalidRequestError(
            f"the report of {record.pipeline}/{record.checkpoint_id} cannot be written to {docs_directory}: "
            f"{_reason(error)}",
            kind="report-not-written",
            hint="set STATELIB_DOCS to a directory with free space that Airflow's workers may write to",
        ) from error


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or f"{type(error).__name__}: {error}"


def _without_report(error: InvalidRequestError) -> QualityResult:
    """Return the warning that the report could not be written."""
    return QualityResult("report", "the report is written", Severity.WARN, False, 1, 1, (str(error),))
