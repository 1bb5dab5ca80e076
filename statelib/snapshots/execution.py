"""Carrying out one snapshot: the synchronous part at once, the rest on this thread or on another.

The thread that asked only waits, so a kill that reaches it cancels at once. Whoever moves the snapshot
out of RUNNING first decides what it becomes: its result is reported, or all it wrote is discarded.

Source: requirements R15, R138, R139, R143 to R146; AsyncSnapshotCallable, SnapshotExecutionType of Flink.
"""

import contextvars
import threading
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from statelib.errors import ConflictError, StatelibError
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategy import SnapshotResources, SnapshotResult, SnapshotStrategy
from statelib.snapshots.uploads import cancelled
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.views import CheckpointStreamFactory

R = TypeVar("R", bound=SnapshotResources)


EXPIRED = "checkpoint-expired"
"""The kind of error with which a deadline ends a snapshot."""


class SnapshotExecutionType(StrEnum):
    SYNCHRONOUS = "sync"
    """The whole snapshot has been carried out when its synchronous part returns."""
    ASYNCHRONOUS = "async"
    """A thread of its own does all that is not synchronous."""


class RunState(StrEnum):
    CREATED = "CREATED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    DISCARDED = "DISCARDED"


@dataclass(frozen=True)
class Executed:
    """A snapshot and the milliseconds that its two parts took."""

    result: SnapshotResult
    sync_ms: int
    async_ms: int


class AsyncSnapshotCallable(Generic[R]):
    """The part of a snapshot that does I/O: called once, from any thread; closed from any other.

    ``owner`` cancels it by being closed, before this is made too (RetryableError, ``cancelled``), and forgets it
    when it is over. The resources are its own from the start: they are released exactly once, also if it is
    never called. After a close, nothing it wrote is left."""

    def __init__(
        self,
        strategy: SnapshotStrategy[R],
        resources: R,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        owner: CloseableRegistry,
    ) -> None:
        self._strategy = strategy
        self._resources = resources
        self._checkpoint_id = checkpoint_id
        self._streams = streams
        self._owner = owner
        self._registry = CloseableRegistry()
        self._lock = threading.Lock()
        self._state = RunState.CREATED
        owner.register(self)

    @property
    def state(self) -> RunState:
        return self._state

    def __call__(self) -> SnapshotResult:
        """Raises what the strategy raises, RetryableError (``cancelled``) if it was closed before or meanwhile."""
        if not self._advance(RunState.CREATED, RunState.RUNNING):
            raise cancelled()
        try:
            result = self._strategy.run(self._resources, self._checkpoint_id, self._streams, self._registry)
        except BaseException:
            self._advance(RunState.RUNNING, RunState.DISCARDED)
            raise
        finally:
            self._resources.release()
            self._owner.unregister(self)
        if not self._advance(RunState.RUNNING, RunState.COMPLETED):
            error = cancelled()
            self.discard(result, error)
            raise error
        return result

    def close(self) -> None:
        """Cancel. Once it is COMPLETED this changes nothing: what it reported is not its own any more."""
        if self._advance(RunState.CREATED, RunState.DISCARDED):
            self._resources.release()
        elif self._advance(RunState.RUNNING, RunState.DISCARDED):
            self._registry.close()

    def _advance(self, before: RunState, after: RunState) -> bool:
        """Compare and set; whether this call did it."""
        with self._lock:
            if self._state is not before:
                return False
            self._state = after
            return True

    def discard(self, result: SnapshotResult, cause: BaseException) -> None:
        """Remove what was written; what cannot be removed is told with ``cause``, and left to the orphan sweep."""
        for written in result.streams:
            try:
                self._streams.discard(written.handle)
            except StatelibError as second:
                cause.add_note(f"also while discarding the snapshot: {second}")


def start(call: AsyncSnapshotCallable[R], execution: SnapshotExecutionType) -> "Future[SnapshotResult]":
    """The future of a snapshot; a synchronous one is done already."""
    future: Future[SnapshotResult] = Future()
    if execution is SnapshotExecutionType.SYNCHRONOUS:
        _run(call, future)
    else:
        # What is logged there is of the same checkpoint.
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(_run, call, future), name="statelib-snapshot", daemon=True).start()
    return future


def await_result(
    call: AsyncSnapshotCallable[R], future: "Future[SnapshotResult]", timeout_s: float | None = None
) -> SnapshotResult:
    """Wait for a started snapshot; if the wait ends otherwise, it is cancelled, and gone when this returns.

    Raises what it raised, and ConflictError (``checkpoint-expired``) after ``timeout_s`` (None: no limit)."""
    try:
        done, _ = wait([future], timeout_s)
        if not done:
            raise expired()
        return future.result()
    except BaseException as error:
        call.close()
        wait([future])
        if future.exception() is None and call.state is RunState.COMPLETED:
            # It won the race, but nobody is there any more to report to.
            call.discard(future.result(), error)
        raise


def execute_snapshot(
    strategy: SnapshotStrategy[R],
    checkpoint_id: CheckpointId,
    streams: CheckpointStreamFactory,
    registry: CloseableRegistry,
    *,
    execution: SnapshotExecutionType = SnapshotExecutionType.ASYNCHRONOUS,
    timeout_s: float | None = None,
) -> Executed:
    """Both parts of a snapshot; the resources are released whatever happens.

    Closing ``registry`` cancels, from any thread. Raises as :func:`await_result`."""
    started = time.monotonic_ns()
    resources = strategy.prepare(checkpoint_id)
    frozen = time.monotonic_ns()
    call = AsyncSnapshotCallable(strategy, resources, checkpoint_id, streams, registry)
    result = await_result(call, start(call, execution), timeout_s)
    return Executed(result, (frozen - started) // 1_000_000, (time.monotonic_ns() - frozen) // 1_000_000)


def expired() -> ConflictError:
    return ConflictError(
        "the checkpoint was not complete before its deadline",
        kind=EXPIRED,
        hint="raise checkpoint.timeout_s of the pipeline file, or clear the run to begin again",
    )


def _run(call: AsyncSnapshotCallable[R], future: "Future[SnapshotResult]") -> None:
    """Leave the outcome in ``future``, whatever it is: the waiting thread raises it again."""
    try:
        future.set_result(call())
    except BaseException as error:  # noqa: BLE001 - also what would end a thread silently
        future.set_exception(error)
