"""How long to go on after a storage said "not now": attempts and pauses are arguments, waiting is too."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from statelib.errors import RetryableError

T = TypeVar("T")


@dataclass(frozen=True)
class Retries:
    """One attempt, and one more after each pause of ``delays_s`` seconds. ``sleep`` waits. A request that is not
    answered whole within ``request_timeout_s`` seconds has failed."""

    delays_s: tuple[float, ...]
    sleep: Callable[[float], None]
    request_timeout_s: float = 60.0

    def run(self, attempt: Callable[[], T]) -> T:
        """What ``attempt`` returns. Its last RetryableError goes on when the pauses are used up; others, and
        a cancel, at once."""
        for delay_s in self.delays_s:
            try:
                return attempt()
            except RetryableError as error:
                if error.kind == "cancelled":
                    raise
                self.sleep(delay_s)
        return attempt()


def wait_never(_delay_s: float) -> None:
    """A ``sleep`` that returns at once."""


IMPATIENT = Retries((), wait_never)
"""One attempt only."""
