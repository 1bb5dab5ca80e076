"""The deadline of a checkpoint in the driver. When it passes, the Spark jobs of the checkpoint are cancelled."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from statelib.snapshots.execution import expired
from statelib.spark.session.either_kind import cancellable

AGAIN_S = 2.0
"""The seconds between two cancellations after the deadline. A further job may have been submitted in between."""


@contextmanager
def until(spark: SparkSession, group: str, deadline_ms: int | None, clock: Callable[[], int]) -> Iterator[None]:
    """Run the Spark jobs of this thread in the group ``group``, and cancel them at ``deadline_ms`` (milliseconds
    since the epoch; None: no deadline). They are also cancelled if the block is interrupted.

    ``clock``: returns the present time in milliseconds since the epoch. Raises ConflictError (``checkpoint-expired``)
    in place of the error of the cancelled job."""
    with cancellable(spark, group) as cancel:
        watch = _Watch(cancel)
        try:
            if deadline_ms is not None:
                watch.start(max(deadline_ms - clock(), 0) / 1000)
            yield
        except Exception as error:
            # A worker also checks the deadline and may have failed before this thread noticed it.
            if watch.passed or (deadline_ms is not None and clock() >= deadline_ms):
                raise expired() from error
            raise
        except BaseException:
            cancel()
            raise
        finally:
            watch.stop()
    if watch.passed:
        raise expired()


class _Watch:
    """A thread that calls ``cancel`` when the time is over, and then repeatedly until it is stopped."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.passed = False
        self._cancel = cancel
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, wait_s: float) -> None:
        thread = threading.Thread(target=self._watch, args=(wait_s,), name="statelib-deadline", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        self._stopped.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, wait_s: float) -> None:
        while not self._stopped.wait(min(wait_s, threading.TIMEOUT_MAX)):
            self.passed, wait_s = True, AGAIN_S
            self._cancel()
