"""Reading happens in a few threads of our own: never on Airflow's event loop, and never in all of its threads."""

from collections.abc import Awaitable, Callable
from functools import cache, partial, wraps
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

from statelib.storage.registry import hurried

P = ParamSpec("P")
R = TypeVar("R")
THREADS = 8
"""A storage that does not answer holds at most so many threads of an API server."""


@cache
def _limiter() -> CapacityLimiter:
    return CapacityLimiter(THREADS)


def reading(function: Callable[P, R]) -> Callable[P, Awaitable[R]]:
    """A route that reads: declared like a function, awaited like a coroutine. A storage that does not answer is asked
    once, and becomes the answer: nobody looks at an empty page through all the retries of a task."""

    def read(*args: P.args, **kwargs: P.kwargs) -> R:
        with hurried():
            return function(*args, **kwargs)

    @wraps(function)
    async def route(*args: P.args, **kwargs: P.kwargs) -> R:
        return await to_thread.run_sync(partial(read, *args, **kwargs), limiter=_limiter())

    return route
