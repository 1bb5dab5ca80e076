"""The registry through which a running snapshot is cancelled (R14, R103 to R107)."""

import threading
from typing import Protocol

from statelib.errors import RetryableError


class Closeable(Protocol):
    """A resource that can be closed."""

    def close(self) -> None:
        """Release the resource."""
        ...


class CloseableRegistry:
    """A thread-safe registry of open resources. Closing the registry closes all of them, each once, the newest first.

    Every resource is closed even if closing another one fails; then the first error is raised, and the later errors
    are its notes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, Closeable] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def register(self, closeable: Closeable) -> None:
        """Add a resource. If the registry is closed already, close the resource and raise RetryableError
        (``cancelled``)."""
        with self._lock:
            if not self._closed:
                self._open[id(closeable)] = closeable
                return
        closeable.close()
        raise RetryableError("the snapshot was cancelled", kind="cancelled")

    def unregister(self, closeable: Closeable) -> bool:
        """Remove a resource and return whether it was registered. False means that the registry has closed it."""
        with self._lock:
            return self._open.pop(id(closeable), None) is not None

    def close(self) -> None:
        """Close the registry and all registered resources. A second call does nothing."""
        with self._lock:
            self._closed = True
            closeables = list(self._open.values())
            self._open.clear()
        first_error: Exception | None = None
        for closeable in reversed(closeables):
            try:
                closeable.close()
            except Exception as error:  # noqa: BLE001 - every resource is closed; the first error is raised below
                if first_error is None:
                    first_error = error
                else:
                    first_error.add_note(f"also while closing: {error}")
        if first_error is not None:
            raise first_error
