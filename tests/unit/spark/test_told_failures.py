"""What a failed Spark job is called."""

from pyspark.errors import PythonException

from statelib.errors import CorruptStateError, RetryableError
from statelib.spark.whole_run import as_own

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
