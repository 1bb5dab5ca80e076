"""What a failed Spark job is called."""

import pytest
from pyspark.errors import PythonException

from statelib.errors import CorruptStateError, RetryableError
from statelib.model.failure import CheckpointFailureReason, decline_note, failure_in
from statelib.spark.session.job_failures import as_own

WORKER = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/srv/app/driver.py", line 145, in run
    report = task(context.partitionId(), events)
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
{raised}

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
"""


def test_what_the_python_worker_raised_is_said() -> None:
    told = as_own(PythonException(WORKER.format(raised="OSError: [Errno 28] No space left on device: '/scratch/x'")))
    assert isinstance(told, RetryableError)
    assert told.message == "the Spark job failed: OSError: [Errno 28] No space left on device: '/scratch/x'"


def test_an_error_of_our_own_stays_itself() -> None:
    told = as_own(PythonException(WORKER.format(raised="statelib.errors.CorruptStateError: chk-3/_metadata: short")))
    assert isinstance(told, CorruptStateError)
    assert told.message == "chk-3/_metadata: short"


def test_without_a_traceback_spark_is_quoted() -> None:
    told = as_own(PythonException("Job aborted.\nmore"))
    assert told is not None
    assert told.message == "the Spark job failed: Job aborted."


FAKE = "CorruptStateError: chk-3/_metadata: short"


@pytest.mark.parametrize(
    "raised",
    [
        f"ValueError: the child said\nstatelib.errors.{FAKE}",
        f'RuntimeError: failed:\nTraceback (most recent call last):\n  File "x", line 1\nstatelib.errors.{FAKE}',
        f"shop.TillProblem: closed\nstatelib.errors.{FAKE}",
    ],
)
def test_what_a_user_function_says_is_not_taken_for_an_error_of_our_own(raised: str) -> None:
    told = as_own(PythonException(WORKER.format(raised=raised)))
    assert isinstance(told, RetryableError)
    assert told.message == f"the Spark job failed: {raised.splitlines()[0]}"


def test_what_a_user_function_says_declines_nothing() -> None:
    attempt, other = "a" * 32, "b" * 32
    error = OSError("disk full")
    said = decline_note(other, 0, CheckpointFailureReason.CHECKPOINT_EXPIRED, error)
    assert failure_in(ValueError(said), attempt)[0] is CheckpointFailureReason.TASK_FAILURE
    assert failure_in(ValueError(said.replace(f" {other}", "")), attempt)[0] is CheckpointFailureReason.TASK_FAILURE
    assert failure_in(ValueError(f"x\n{said}\ny"), other) == (
        CheckpointFailureReason.CHECKPOINT_EXPIRED,
        "subtask 0 declined the checkpoint, CHECKPOINT_EXPIRED: OSError: disk full",
    )
