"""A checkpoint's deadline in the driver: when it passes, the Spark jobs of the checkpoint are cancelled."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from statelib.snapshots.execution import expired

AGAIN_S = 2.0
"""How often the jobs are cancelled once the deadline is over: one more may have been submitted meanwhile."""
_GROUP = "spark.jobGroup.id"


@contextmanager
def until(spark: SparkSession, group: str, deadline_ms: int | None, clock: Callable[[], int]) -> Iterator[None]:
    """Run the Spark jobs of this thread as the job group ``group``, none beyond ``deadline_ms`` (epoch; None: no
    limit). Whatever ends this early cancels them too.

    Raises ConflictError (``checkpoint-expired``) in place of what the cancelled job raises."""
    context = spark.sparkContext
    watch = _Watch(lambda: context.cancelJobGroup(group))
    try:
        if deadline_ms is not None:
            watch.start(max(deadline_ms - clock(), 0) / 1000)
        context.setJobGroup(group, group)
        yield
    except Exception as error:
        # A worker that watches the clock too may have been the first to say so.
        if watch.passed or (deadline_ms is not None and clock() >= deadline_ms):
            raise expired() from error
        raise
    except BaseException:
        context.cancelJobGroup(group)
        raise
    finally:
        watch.stop()
        context.setLocalProperty(_GROUP, None)  # type: ignore[arg-type]  # None unsets it
    if watch.passed:
        raise expired()


class _Watch:
    """Calls ``cancel`` when the time is over, and again until it is stopped."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.passed = False
        self._cancel = cancel
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, wait_s: float) -> None:
        thread = threading.Thread(target=self._watch, args=(wait_s,), name="statelib-deadline", daemon=True)
        thread.start()
        self._thread = thread

    def stop(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self, wait_s: float) -> None:
        while not self._over.wait(min(wait_s, threading.TIMEOUT_MAX)):
            self.passed, wait_s = True, AGAIN_S
            self._cancel()
