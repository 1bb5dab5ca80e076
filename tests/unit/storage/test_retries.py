"""Retries: as many attempts as there are pauses, and one more."""

import pytest

from statelib.errors import ConflictError, RetryableError, StatelibError
from statelib.storage.retries import Retries


def attempts(*outcomes: StatelibError | None) -> tuple[list[float], int, StatelibError | None]:
    """Return (pauses taken, attempts made, error at the end), if the attempts have these outcomes."""
    left, pauses = list(outcomes), []

    def attempt() -> None:
        error = left.pop(0)
        if error is not None:
            raise error

    try:
        Retries((1, 2), pauses.append).run(attempt)
    except StatelibError as error:
        return pauses, len(outcomes) - len(left), error
    return pauses, len(outcomes) - len(left), None


TROUBLE = RetryableError("trouble", kind="storage-io")
CANCELLED = RetryableError("stop", kind="cancelled")
REFUSED = ConflictError("taken", kind="name-taken")


@pytest.mark.parametrize(
    ("outcomes", "pauses", "made", "error"),
    [
        ((None, None), [], 1, None),
        ((TROUBLE, None, None), [1], 2, None),
        ((TROUBLE, TROUBLE, None, None), [1, 2], 3, None),
        ((TROUBLE, TROUBLE, TROUBLE, None), [1, 2], 3, TROUBLE),
        ((REFUSED, None), [], 1, REFUSED),
        ((TROUBLE, REFUSED, None), [1], 2, REFUSED),
        ((TROUBLE, CANCELLED, None), [1], 2, CANCELLED),
    ],
)
def test_there_is_one_attempt_more_than_pauses(
    outcomes: tuple[StatelibError | None, ...], pauses: list[float], made: int, error: StatelibError | None
) -> None:
    assert attempts(*outcomes) == (pauses, made, error)
