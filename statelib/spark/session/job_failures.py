"""The translation of Spark's errors into errors of statelib: one clear message instead of a Java stack trace."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from statelib.errors import InvalidRequestError, RetryableError, StatelibError
from statelib.model.task_error import USER_CODE, TaskError

OF_SPARK = (PySparkException, Py4JError)
"""The exceptions that a call of Spark can raise. Errors in the JVM of the driver are often Py4JError."""

MALFORMED_RECORD = "malformed-record"
"""The kind of the error about a record that cannot be read as a whole."""

_FILE = re.compile(r"Encountered error while reading file (\S+?)\.?(?:\s|$)")
_FORMAT = re.compile(r"(?:\[DATA_SOURCE_NOT_FOUND\] )?Failed to find (?:the )?data source: ([\w.-]+?)\.(?:\s|$)")
_VALUE = re.compile(r"\[([A-Z_.]+)\] ([^\n]*?)\s*SQLSTATE: (?:22\w{3}|P0001)")
"""Spark's message about a value that an expression cannot compute with. SQL's states of class 22 are data errors, and
P0001 is an error that an expression raises itself."""
_RECORD = re.compile(r"\[MALFORMED_RECORD_IN_PARSING[A-Z_.]*\] [^\n:]*: (?:_corrupt_record|([^\n]*))\.")
"""Spark's message about a record of a text format. While it looks for the columns, it names neither file nor record."""
_CAUSE = re.compile(r"(?:Caused by: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (?!\[FAILED_READ_FILE)(.*)")
_LOST = re.compile(r"(Python worker exited unexpectedly|ExecutorLostFailure|Executor heartbeat timed out)")
_NO_STATELIB = re.compile(r"ModuleNotFoundError: No module named '(statelib|statelib_jobs)'")
_JAVA = re.compile(r"(?:: )?(?:[\w$]+\.)+[\w$]*(?:Exception|Error): (.*)")
_MOST = 500
"""The most characters of Spark's message that are quoted."""


@contextmanager
def naming_what_failed() -> Iterator[None]:
    """Raise Spark's errors about a file, a format or a value as errors that name it: RetryableError
    (``source-unreadable``), InvalidRequestError (``unknown-format``, ``bad-source-value``,
    ``malformed-record``). Other errors stay as they are."""
    try:
        yield
    except OF_SPARK as error:
        source_error = _of_source(str(error))
        if source_error is None:
            raise
        raise source_error from error


def as_own(error: Exception) -> StatelibError | None:
    """Return the error of statelib for a failed Spark job; None if ``error`` is neither of Spark nor of statelib.

    An error of statelib is returned as it is; errors of tasks have become such errors before
    (:func:`~statelib.model.task_error.raising_task_errors`). For an error of Spark, an error with the exception of the
    Python worker, or with Spark's message, is returned."""
    if isinstance(error, StatelibError):
        return error
    if not isinstance(error, OF_SPARK):
        return None
    return _job_failure(_raised(str(error).splitlines()) or str(error))


def failed_task(task_error: TaskError, token: str) -> StatelibError:
    """Return the error to raise for an error that a task returned. It has the note of the task, with this token."""
    error = task_error.error() or RetryableError(
        f"the Spark job failed: {task_error.type}: {task_error.message}",
        kind="spark-failed",
        hint="if a function of yours raised this, correct it; otherwise the same call may be repeated",
    )
    error.add_note(task_error.note(token))
    return error


def _raised(lines: list[str]) -> str | None:
    """Return the exception of a Python worker from Spark's message: the first line after the indented frames of the
    first traceback, and the note about the user's function that raised it. Return None if there is no traceback.
    Further lines of the exception are ignored."""
    heads = (at for at, line in enumerate(lines) if line.endswith("Traceback (most recent call last):"))
    below = [line.strip() for line in lines[next(heads, len(lines)) + 1 :] if line.strip() and line[0] != " "]
    return ", ".join([*below[:1], *[line for line in below[1:] if USER_CODE.match(line)][:1]]) or None


def _job_failure(text: str) -> StatelibError:
    """Return the error for Spark's message about a failed job: RetryableError (``source-unreadable``, ``worker-lost``,
    ``spark-failed``) or InvalidRequestError (``unknown-format``, ``bad-source-value``, ``malformed-record``,
    ``no-statelib``)."""
    return (
        _of_source(text)
        or _of_worker(text)
        or RetryableError(
            f"the Spark job failed: {_first(text)[:_MOST]}", kind="spark-failed", hint="the same call may be repeated"
        )
    )


def _of_source(text: str) -> StatelibError | None:
    for pattern, error in _SOURCES.items():
        match = pattern.search(text)
        if match is not None:
            return error(match, text)
    return None


def _unreadable(match: re.Match[str], text: str) -> StatelibError:
    file = match[1]
    lines = (_CAUSE.match(line.strip()) for line in text[text.index(file) :].splitlines()[1:])
    cause = next((line[1] for line in lines if line and not line[1].startswith("Exception thrown in")), "")
    return RetryableError(
        f"source file {file} cannot be read" + (f": {cause[:_MOST]}" if cause else ""),
        kind="source-unreadable",
        hint="a file that is not of the source's format must not lie there; write a damaged one again; then run again",
    )


def _unknown_format(match: re.Match[str], _text: str) -> StatelibError:
    return InvalidRequestError(
        f"source.format {match[1]!r}: Spark has no such data source",
        kind="unknown-format",
        hint="correct source.format, or give Spark the package that brings it (spark.jars.packages)",
    )


def _bad_value(match: re.Match[str], _text: str) -> StatelibError:
    return InvalidRequestError(
        f"a row of the source has a value that a condition or an expression cannot take: {match[1]}: "
        f"{match[2][:_MOST]}",
        kind="bad-source-value",
        hint="correct the row, or write an expression that takes such values, for example with try_cast or CASE",
    )


def _malformed_record(match: re.Match[str], text: str) -> StatelibError:
    file = _FILE.search(text)
    return InvalidRequestError(
        f"{f'source file {file[1]}' if file else 'the source'} has a record that cannot be read as a whole"
        + (f": {match[1][:_MOST]}" if match[1] else ""),
        kind=MALFORMED_RECORD,
        hint="write the file again, or leave such records out with 'options: {mode: DROPMALFORMED}' of the source",
    )


_SOURCES: dict[re.Pattern[str], Callable[[re.Match[str], str], StatelibError]] = {
    _RECORD: _malformed_record,
    _FILE: _unreadable,
    _FORMAT: _unknown_format,
    _VALUE: _bad_value,
}


def _of_worker(text: str) -> StatelibError | None:
    if _NO_STATELIB.search(text):
        return InvalidRequestError(
            "the Python of Spark's workers has no statelib",
            kind="no-statelib",
            hint="install this version of statelib in the Python environment of each executor (spark.pyspark.python), "
            "or send it with the job (--py-files); through Spark Connect, in the environment of the server's executors",
        )
    match = _LOST.search(text)
    if match is None:
        return None
    return RetryableError(
        f"the Spark job failed: a worker was lost: {text[match.start() :].splitlines()[0][:_MOST]}",
        kind="worker-lost",
        hint="it was killed, or ran out of memory: look at its host, give it more memory or the pipeline more "
        "parallelism; the same call may be repeated",
    )


def _first(text: str) -> str:
    """Return the message of the first Java exception in the text; without one, the first line that is not empty."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    exceptions = (_JAVA.fullmatch(line) for line in lines)
    message = next((match[1] for match in exceptions if match), "")
    return message or (lines[0] if lines else "Spark said nothing about it")
