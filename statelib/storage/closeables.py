"""CloseableRegistry: the one place that a cancelled snapshot is cancelled through (R14, R103-R107)."""

import threading
from typing import Protocol

from statelib.errors import RetryableError


class Closeable(Protocol):
    def close(self) -> None: ...


class CloseableRegistry:
    """Closes all that is registered when it is closed itself, newest first, once.

    Registering with a closed registry closes the newcomer and raises RetryableError
    (kind ``cancelled``). Thread-safe. All closes are tried; the first error is raised last,
    later ones are its notes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, Closeable] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def register(self, closeable: Closeable) -> None:
        with self._lock:
            if not self._closed:
                self._open[id(closeable)] = closeable
                return
        closeable.close()
        raise RetryableError("the snapshot was cancelled", kind="cancelled")

    def unregister(self, closeable: Closeable) -> bool:
        """Whether it was still registered (False: the registry closed it already)."""
        with self._lock:
            return self._open.pop(id(closeable), None) is not None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            doomed = list(self._open.values())
            self._open.clear()
        first: Exception | None = None
        for closeable in reversed(doomed):
            try:
                closeable.close()
            except Exception as error:  # noqa: BLE001 - every resource gets its chance; the first error is raised below
                if first is None:
                    first = error
                else:
                    first.add_note(f"also while closing: {error}")
        if first is not None:
            raise first
