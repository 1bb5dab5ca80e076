"""Routes that read: off the event loop, a few at a time."""

import asyncio
import inspect
import threading
import time

import pytest

from plugins.statelib_airflow.addresses import framed, run_page
from plugins.statelib_airflow.api.threads import THREADS, reading


def test_a_slow_read_keeps_nobody_waiting_and_takes_a_few_threads() -> None:
    running, most, here = set(), [0], threading.get_ident()
    lock = threading.Lock()

    @reading
    def slow(number: int) -> int:
        with lock:
            running.add(number)
            most[0] = max(most[0], len(running))
        assert threading.get_ident() != here
        time.sleep(0.05)
        with lock:
            running.discard(number)
        return number

    async def everybody() -> list[int]:
        reads = asyncio.gather(*(slow(number) for number in range(3 * THREADS)))
        turns = 0
        while not reads.done():
            await asyncio.sleep(0.001)
            turns += 1
        assert turns > 5, "the loop went on turning"
        return await reads

    assert asyncio.run(everybody()) == list(range(3 * THREADS))
    assert 1 < most[0] <= THREADS
    assert list(inspect.signature(slow).parameters) == ["number"], "FastAPI sees what the function asks for"


def test_a_failure_of_the_read_is_that_of_the_route() -> None:
    @reading
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(broken())


def test_paths_of_airflow_escape_what_is_put_into_them() -> None:
    assert run_page("a.b", "manual__2013-01-05T00:00:00+00:00/..") == (
        "/dags/a.b/runs/manual__2013-01-05T00%3A00%3A00%2B00%3A00%2F.."
    )
    assert framed("", "/p/x") == "/plugin/state/statelib/#/p/x"
    assert framed("/air", "/p/x") == "/air/plugin/state/air/statelib/#/p/x"
