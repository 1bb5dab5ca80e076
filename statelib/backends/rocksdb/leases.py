"""Leases: a database is not disposed of while a scan or a checkpoint still reads it (requirement R47)."""

import threading
from collections.abc import Callable

from statelib.errors import InvalidRequestError


class Leases:
    """Counts readers; after :meth:`close`, the last one to give back runs ``dispose``, once.

    Closing does not wait, so that a thread that still holds a lease of its own cannot lock itself out."""

    def __init__(self, dispose: Callable[[], None]) -> None:
        self._dispose = dispose
        self._lock = threading.Lock()
        self._held = 0
        self._closed = False

    def take(self) -> None:
        """Raises InvalidRequestError (``backend-closed``) after :meth:`close`."""
        with self._lock:
            if self._closed:
                raise InvalidRequestError("the backend is closed", kind="backend-closed")
            self._held += 1

    def give_back(self) -> None:
        with self._lock:
            self._held -= 1
            last = self._closed and self._held == 0
        if last:
            self._dispose()

    def close(self) -> None:
        with self._lock:
            last = not self._closed and self._held == 0
            self._closed = True
        if last:
            self._dispose()

    @property
    def closed(self) -> bool:
        return self._closed
