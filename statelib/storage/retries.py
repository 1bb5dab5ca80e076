"""Repeating requests that a storage in trouble did not answer. The pauses and the function that waits are arguments."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from statelib.errors import RetryableError

T = TypeVar("T")


@dataclass(frozen=True)
class Retries:
    """The schedule of attempts: one attempt, and one more after each pause of ``delays_s`` seconds.

    ``sleep`` waits for a number of seconds. A request fails if its whole answer has not arrived after
    ``request_timeout_s`` seconds."""

    delays_s: tuple[float, ...]
    sleep: Callable[[float], None]
    request_timeout_s: float = 60.0

    def run(self, attempt: Callable[[], T]) -> T:
        """Call ``attempt`` until it succeeds, and return its result.

        A RetryableError is raised when no pause is left. Any other error, and a RetryableError of kind ``cancelled``,
        is raised at once."""
        for delay_s in self.delays_s:
            try:
                return attempt()
            except RetryableError as error:
                if error.kind == "cancelled":
                    raise
                self.sleep(delay_s)
        return attempt()


def wait_never(_delay_s: float) -> None:
    """Return at once: a ``sleep`` that does not wait."""


IMPATIENT = Retries((), wait_never)
"""The schedule of a single attempt."""
