"""The errors that describe a failed Spark job."""

import traceback

import pytest
from pyspark.errors import PythonException

from statelib.errors import CorruptStateError, NotFoundError, RetryableError, StatelibError
from statelib.model.failure import CheckpointFailureReason
from statelib.model.task_error import TaskError, failure_in, noting_task_error, raising_task_errors
from statelib.spark.session.job_failures import as_own

ATTEMPT = "a" * 32
WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/srv/app/driver.py", line 145, in run
    report = task(context.partitionId(), events)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
{raised}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
"""


def test_the_error_of_the_python_worker_is_quoted() -> None:
    error = as_own(PythonException(WORKER.format(raised="OSError: [Errno 28] No space left on device: '/scratch/x'")))
    assert isinstance(error, RetryableError)
    assert error.message == "the Spark job failed: OSError: [Errno 28] No space left on device: '/scratch/x'"


def from_task(error: Exception, token: str) -> PythonException:
    """Return what the driver receives of an error that subtask 2 raised: its text."""
    with pytest.raises(type(error)) as raised, noting_task_error(token, 2):
        raise error
    text = "".join(traceback.format_exception(raised.value))
    return PythonException(
        f"\n  An exception was thrown from the Python worker.\n{text}\n\tat org.apache.spark.X(X.scala:1)"
    )


@pytest.mark.parametrize(
    "place", ["in function jobs:update of state s", "in hooks.snapshot_state, jobs:f, of subtask 2"]
)
def test_the_function_of_the_user_that_failed_is_named(place: str) -> None:
    raised = ZeroDivisionError("division by zero")
    raised.add_note(place)
    error = from_task(raised, ATTEMPT)
    reported = as_own(error)
    assert reported is not None
    assert reported.message == f"the Spark job failed: ZeroDivisionError: division by zero, {place}"
    reason, text = failure_in(error, ATTEMPT)
    assert text == f"subtask 2 failed, {reason}: ZeroDivisionError: division by zero, {place}"


def test_an_error_of_statelib_keeps_class_kind_and_hint() -> None:
    error = from_task(CorruptStateError("chk-3/_metadata: short", kind="short-file", hint="statelib verify"), ATTEMPT)
    with pytest.raises(CorruptStateError) as caught, raising_task_errors(ATTEMPT):
        raise error
    reported = as_own(caught.value)
    assert isinstance(reported, CorruptStateError)
    assert (reported.message, reported.kind, reported.hint) == (
        "chk-3/_metadata: short",
        "short-file",
        "statelib verify",
    )


@pytest.mark.parametrize(
    "error",
    [from_task(OSError("disk full"), "a" * 32), from_task(NotFoundError("of another attempt", kind="x"), "b" * 32)],
)
def test_other_errors_of_spark_are_raised_unchanged(error: PythonException) -> None:
    with pytest.raises(PythonException) as caught, raising_task_errors(ATTEMPT):
        raise error
    assert caught.value is error


def test_a_task_error_is_read_back_from_its_text() -> None:
    for error in (CorruptStateError("of {two}\nlines", kind="short-file"), OSError("disk full")):
        task_error = TaskError.of(error, 3, CheckpointFailureReason.CHECKPOINT_EXPIRED)
        assert TaskError.from_json(task_error.to_json()) == task_error
        assert (task_error.error() is None) is not isinstance(error, StatelibError)


def test_without_a_traceback_the_message_of_spark_is_quoted() -> None:
    error = as_own(PythonException("Job aborted.\nmore"))
    assert error is not None
    assert error.message == "the Spark job failed: Job aborted."


FAKE = "CorruptStateError: chk-3/_metadata: short"


@pytest.mark.parametrize(
    "raised",
    [
        f"ValueError: the child said\nstatelib.errors.{FAKE}",
        f'RuntimeError: failed:\nTraceback (most recent call last):\n  File "x", line 1\nstatelib.errors.{FAKE}',
        f"shop.TillProblem: closed\nstatelib.errors.{FAKE}",
    ],
)
def test_text_of_a_user_function_is_not_read_as_an_error_of_statelib(raised: str) -> None:
    error = as_own(PythonException(WORKER.format(raised=raised)))
    assert isinstance(error, RetryableError)
    assert error.message == f"the Spark job failed: {raised.splitlines()[0]}"


def test_text_of_a_user_function_cannot_set_the_failure_reason() -> None:
    attempt, other = "a" * 32, "b" * 32
    expired = noting_task_error(other, 0, CheckpointFailureReason.CHECKPOINT_EXPIRED)
    with pytest.raises(OSError, match="disk full") as raised, noting_task_error(other, 0), expired:
        raise OSError("disk full")
    note = raised.value.__notes__[0]
    assert failure_in(ValueError(note), attempt)[0] is CheckpointFailureReason.TASK_FAILURE
    assert failure_in(ValueError(note.replace(f" {other}", "")), attempt)[0] is CheckpointFailureReason.TASK_FAILURE
    noted = (
        CheckpointFailureReason.CHECKPOINT_EXPIRED,
        "subtask 0 declined the checkpoint, CHECKPOINT_EXPIRED: OSError: disk full",
    )
    assert failure_in(ValueError(f"x\n{note}\ny"), other) == noted
    assert failure_in(raised.value, other) == noted, "the note of the inner block counts"
