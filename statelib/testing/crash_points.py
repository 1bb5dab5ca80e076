"""Functions that arm crash points: to record the points that are reached, or to end the process at one of them, really
or by an exception."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from statelib import crash_points


class Crash(BaseException):
    """An exception that stands for the end of the process. ``except Exception`` does not catch it, but cleanup code
    runs, which a killed process would not run."""


def crash(name: str) -> None:
    """Raise :class:`Crash` instead of ending the process."""
    raise Crash(name)


def kill(_name: str) -> None:
    """End this process by SIGKILL, which no handler can prevent."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Place:
    """One passage through a crash point: the ``nth`` time, counted from 0, that ``point`` is reached."""

    point: str
    nth: int = 0


@contextmanager
def recorded() -> Iterator[list[Place]]:
    """Yield the list of the places reached so far, in order. It grows while the block runs."""
    reached: list[Place] = []
    times_reached: Counter[str] = Counter()
    lock = threading.Lock()

    def note(name: str) -> None:
        with lock:
            reached.append(Place(name, times_reached[name]))
            times_reached[name] += 1

    with _armed(note):
        yield reached


@contextmanager
def ends_at(place: Place, end: Callable[[str], None]) -> Iterator[None]:
    """Call ``end`` once, when ``place`` is reached. ``end`` is :func:`kill` or :func:`crash`."""
    times_reached: Counter[str] = Counter()
    lock = threading.Lock()

    def reached(name: str) -> None:
        with lock:
            number = times_reached[name]
            times_reached[name] += 1
        if (name, number) == (place.point, place.nth):
            end(name)

    with _armed(reached):
        yield


@contextmanager
def _armed(reached: Callable[[str], None]) -> Iterator[None]:
    crash_points.armed.append(reached)
    try:
        yield
    finally:
        crash_points.armed.remove(reached)
