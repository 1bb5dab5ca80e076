"""Routes that read: off the event loop, a few at a time."""

import asyncio
import inspect
import threading

import pytest
from statelib_airflow.addresses import framed, run_page
from statelib_airflow.api.threads import THREADS, reading

PATIENCE_S = 60.0


def test_a_slow_read_does_not_block_the_event_loop_and_uses_few_threads() -> None:
    """The reads end once the loop has seen the largest allowed number of them in progress, and was not blocked
    meanwhile."""
    running, most, own_thread = set(), [0], threading.get_ident()
    lock, seen = threading.Lock(), threading.Event()

    @reading
    def slow(number: int) -> int:
        with lock:
            running.add(number)
            most[0] = max(most[0], len(running))
        assert threading.get_ident() != own_thread
        assert seen.wait(PATIENCE_S), "the loop did not go on while reads were under way"
        with lock:
            running.discard(number)
        return number

    async def everybody() -> list[int]:
        reads = asyncio.gather(*(slow(number) for number in range(3 * THREADS)))
        while len(running) < THREADS and not reads.done():
            await asyncio.sleep(0.001)
        for _ in range(5):
            await asyncio.sleep(0.001)
        seen.set()
        return await reads

    assert asyncio.run(everybody()) == list(range(3 * THREADS))
    assert most[0] == THREADS
    assert list(inspect.signature(slow).parameters) == ["number"], "FastAPI sees what the function asks for"


def test_a_failure_of_the_read_is_raised_by_the_route() -> None:
    @reading
    def broken() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        asyncio.run(broken())


def test_paths_of_airflow_escape_their_parameters() -> None:
    assert run_page("a.b", "manual__2013-01-05T00:00:00+00:00/..") == (
        "/dags/a.b/runs/manual__2013-01-05T00%3A00%3A00%2B00%3A00%2F.."
    )
    assert framed("", "/p/x") == "/plugin/state/statelib/#/p/x"
    assert framed("/air", "/p/x") == "/air/plugin/state/air/statelib/#/p/x"
