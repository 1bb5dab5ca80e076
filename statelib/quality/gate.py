"""The quality gate, which checks from facts that a checkpoint is complete and as expected, and writes a report."""

import shutil
from typing import TYPE_CHECKING

from statelib.errors import InvalidRequestError
from statelib.model.quality import QualityResult, Severity
from statelib.model.record import CheckpointRecord
from statelib.quality.facts import CheckpointFacts, QualityReport

if TYPE_CHECKING:
    from statelib.quality.validation import Validation

__all__ = ["QualityReport", "run_gate"]


def run_gate(facts: CheckpointFacts, docs_directory: str) -> QualityReport:
    """Return the result of checking ``facts`` with Great Expectations, and write it as static HTML pages.

    ``docs_directory``: absolute path or ``file:`` URI. It is created. If it exists from an earlier run of the
    gate, its pages stay and the new ones are written to ``<docs_directory>-2``, and so on. The verdict does not
    depend on the pages: if they cannot be written, the report's URI is '' and the results contain a warning with the
    reason. The first call in a process takes some seconds of CPU to import Great Expectations.
    """
    from statelib.quality.frames import frames_of
    from statelib.quality.validation import validate

    validation = validate(frames_of(facts))
    try:
        uri = _report(validation, facts.record, docs_directory)
    except InvalidRequestError as error:
        return QualityReport("", (*validation.results, _without_report(error)), facts.read_keys)
    return QualityReport(uri, validation.results, facts.read_keys)


def _report(validation: "Validation", record: CheckpointRecord, docs_directory: str) -> str:
    """Write the report and return its URI. A partly written report is removed.

    Raises InvalidRequestError (``report-not-written``) for an error of any type, because a library makes the pages
    from any kind of data."""
    from statelib.quality.docs import fresh_directory, write_index

    directory = None
    try:
        directory = fresh_directory(docs_directory)
        validation.write_pages(str(directory))
        return write_index(directory, record, validation.results)
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
