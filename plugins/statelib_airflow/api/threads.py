"""A small number of threads in which the page's routes read, so that they never block Airflow's event loop."""

from collections.abc import Awaitable, Callable
from functools import cache, partial, wraps
from typing import ParamSpec, TypeVar

from anyio import CapacityLimiter, to_thread

from statelib.storage.registry import hurried

P = ParamSpec("P")
R = TypeVar("R")
THREADS = 8
"""The greatest number of threads that a storage without an answer can block in an API server."""


@cache
def _limiter() -> CapacityLimiter:
    return CapacityLimiter(THREADS)


def reading(function: Callable[P, R]) -> Callable[P, Awaitable[R]]:
    """Return a coroutine that runs the function in one of the threads.

    A storage that does not answer is tried once, and the error is the response: the user of a page does not wait for
    all the retries of a task."""

    def read(*args: P.args, **kwargs: P.kwargs) -> R:
        with hurried():
            return function(*args, **kwargs)

    @wraps(function)
    async def route(*args: P.args, **kwargs: P.kwargs) -> R:
        return await to_thread.run_sync(partial(read, *args, **kwargs), limiter=_limiter())

    return route
