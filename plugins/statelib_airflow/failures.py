"""The translation of statelib's errors for Airflow: a task is retried if a retry can help, else it fails at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import AirflowFailException

from statelib.errors import RetryableError, StatelibError
from statelib.extras import extras_named


@contextmanager
def failing_fast() -> Iterator[None]:
    """Turn a StatelibError of the block into AirflowFailException, ``kind: message (hint)``, which fails the task for
    good. A RetryableError passes unchanged, so that Airflow retries the task.
    """
    try:
        with extras_named():
            yield
    except RetryableError:
        raise
    except StatelibError as error:
        raise AirflowFailException(f"{error.kind}: {error}") from error
