"""Arms crash points: tells of each one that is reached, ends the process at one of them, or pretends to."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from statelib import crash_points


class Crash(BaseException):
    """Raised at a crash point instead of a kill: nobody catches it, but what cleans up on the way does."""


def crash(name: str) -> None:
    """Pretend."""
    raise Crash(name)


def kill(_name: str) -> None:
    """End this process, as nothing can prevent."""
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Place:
    """The ``nth`` time, from 0, that a point is reached."""

    point: str
    nth: int = 0


@contextmanager
def recorded() -> Iterator[list[Place]]:
    """The points that are reached, in order."""
    reached: list[Place] = []
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def note(name: str) -> None:
        with lock:
            reached.append(Place(name, seen[name]))
            seen[name] += 1

    with _armed(note):
        yield reached


@contextmanager
def ends_at(place: Place, end: Callable[[str], None]) -> Iterator[None]:
    """``end`` is called at that place, once: :func:`kill` or :func:`crash`."""
    seen: Counter[str] = Counter()
    lock = threading.Lock()

    def reached(name: str) -> None:
        with lock:
            number = seen[name]
            seen[name] += 1
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
