"""How an error of statelib ends an Airflow task: retried where a retry can help, else failed at once."""

from collections.abc import Iterator
from contextlib import contextmanager

from airflow.providers.common.compat.sdk import AirflowFailException

from statelib.errors import RetryableError, StatelibError
from statelib.extras import extras_named


@contextmanager
def failing_fast() -> Iterator[None]:
    """Let RetryableError through to Airflow's retries; any other StatelibError fails the task for good.

    Raises AirflowFailException with ``kind: message (hint)``.
    """
    try:
        with extras_named():
            yield
    except RetryableError:
        raise
    except StatelibError as error:
        raise AirflowFailException(f"{error.kind}: {error}") from error
