"""Threads that write the streams of one snapshot side by side."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from statelib.snapshots.uploads import Uploads

A = TypeVar("A")
T = TypeVar("T")

_THREADS = 4
"""As state.backend.rocksdb.checkpoint.transfer.thread.num."""


class UploadThreads:
    """A pool of threads; :meth:`close` ends it."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="statelib-upload")

    def run(self, uploads: Uploads, work: Callable[[str, A], T], files: Iterable[tuple[str, A]]) -> list[tuple[str, T]]:
        """Return (name, ``work(name, what)``) of all (name, what); the first failure stops the others and is raised."""
        running: dict[str, Future[T]] = {}
        try:
            for name, what in files:
                running[name] = self._pool.submit(copy_context().run, work, name, what)
            done, _ = wait(running.values(), return_when=FIRST_EXCEPTION)
            _raise_first_failure(done)
        except BaseException:
            uploads.stop()
            for future in running.values():
                future.cancel()
            wait(running.values())
            raise
        return [(name, future.result()) for name, future in running.items()]

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def _raise_first_failure(done: Iterable[Future[T]]) -> None:
    for future in done:
        error = future.exception()
        if error is not None:
            raise error
