"""The threads that write the streams of one snapshot in parallel."""

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from statelib.snapshots.uploads.streams import Uploads

A = TypeVar("A")
T = TypeVar("T")

_THREADS = 4
"""The number of threads: Flink's default of ``state.backend.rocksdb.checkpoint.transfer.thread.num``."""


class UploadThreads:
    """A pool of threads. :meth:`close` ends them."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="statelib-upload")
        self._at_work = False

    def run(self, uploads: Uploads, work: Callable[[str, A], T], files: Iterable[tuple[str, A]]) -> list[tuple[str, T]]:
        """Call ``work`` with each pair in ``files``, in parallel, and return (name, result) per pair.

        The first error stops ``uploads`` and the other calls, and is raised.

        Args:
            uploads: The streams that ``work`` writes.
            work: The function to call with the name and the source of a file.
            files: (name, source) per file.
        """
        running: dict[str, Future[T]] = {}
        self._at_work = True
        try:
            for name, source in files:
                running[name] = self._pool.submit(copy_context().run, work, name, source)
            done, _ = wait(running.values(), return_when=FIRST_EXCEPTION)
            _raise_first_failure(done)
        except BaseException:
            uploads.stop()
            for future in running.values():
                future.cancel()
            wait(running.values())
            raise
        finally:
            self._at_work = False
        return [(name, future.result()) for name, future in running.items()]

    def close(self) -> None:
        """End the threads and wait for them. Threads of a snapshot that was left alone end by themselves, when the
        snapshot does."""
        self._pool.shutdown(wait=not self._at_work, cancel_futures=True)


def _raise_first_failure(done: Iterable[Future[T]]) -> None:
    """Raise the error of a call that failed, if there is one."""
    for future in done:
        error = future.exception()
        if error is not None:
            raise error
