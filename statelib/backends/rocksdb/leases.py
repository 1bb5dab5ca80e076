"""Leases: they keep a database open as long as a scan or a checkpoint still reads it (requirement R47)."""

import threading
from collections.abc import Callable

from statelib.errors import InvalidRequestError


class Leases:
    """The number of readers of a database. After :meth:`close`, ``dispose`` is called once, by the last reader that
    gives its lease back.

    :meth:`close` does not wait, so that a thread that still holds a lease cannot block itself."""

    def __init__(self, dispose: Callable[[], None]) -> None:
        self._dispose = dispose
        self._lock = threading.Lock()
        self._held = 0
        self._closed = False

    def take(self) -> None:
        """Take a lease. Raises InvalidRequestError (``backend-closed``) after :meth:`close`."""
        with self._lock:
            if self._closed:
                raise InvalidRequestError("the backend is closed", kind="backend-closed")
            self._held += 1

    def give_back(self) -> None:
        """Give one lease back. Call it once per :meth:`take`."""
        with self._lock:
            self._held -= 1
            last = self._closed and self._held == 0
        if last:
            self._dispose()

    def close(self) -> None:
        """Refuse further leases, and dispose of the database as soon as no lease is held."""
        with self._lock:
            last = not self._closed and self._held == 0
            self._closed = True
        if last:
            self._dispose()

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed
