"""Carrying out one snapshot: the synchronous part at once, the rest on a thread of its own.

The thread that asked only waits, whatever the execution type. A signal, which Python raises on the main thread between
any two of its steps, hence never meets a step that takes a file. Whoever moves the snapshot out of RUNNING first
decides what it becomes: its result is reported, or all it wrote is discarded.

Source: requirements R15, R138, R139, R143 to R146; AsyncSnapshotCallable, SnapshotExecutionType of Flink.
"""

import contextvars
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from statelib.errors import ConflictError, StatelibError
from statelib.model.ids import CheckpointId
from statelib.snapshots.strategy import SnapshotResources, SnapshotResult, SnapshotStrategy
from statelib.snapshots.uploads import cancelled, discard_all
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.views import CheckpointStreamFactory

R = TypeVar("R", bound=SnapshotResources)


EXPIRED = "checkpoint-expired"
"""The kind of error with which a deadline ends a snapshot."""


class SnapshotExecutionType(StrEnum):
    SYNCHRONOUS = "sync"
    """The synchronous part lasts until the whole snapshot has been carried out."""
    ASYNCHRONOUS = "async"
    """The synchronous part ends when the view is frozen."""


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

    The resources are its own from the start: they are released exactly once, also if it is never called.
    After a close, nothing it wrote is left."""

    def __init__(
        self,
        strategy: SnapshotStrategy[R],
        resources: R,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
    ) -> None:
        self._strategy = strategy
        self._resources = resources
        self._checkpoint_id = checkpoint_id
        self._streams = streams
        self._owner: CloseableRegistry | None = None
        self._registry = CloseableRegistry()
        self._lock = threading.Lock()
        self._state = RunState.CREATED
        self._began = False

    def cancelled_by(self, owner: CloseableRegistry) -> None:
        """Let ``owner`` cancel this by being closed; it forgets this when it is over.

        Raises RetryableError (``cancelled``) if it is closed already: then this is closed, too."""
        self._owner = owner
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
            self._leave()
        if not self._advance(RunState.RUNNING, RunState.COMPLETED):
            error = cancelled()
            self.discard(result, error)
            raise error
        return result

    def close(self) -> None:
        """Cancel. Once it is COMPLETED this changes nothing: what it reported is not its own any more."""
        if self._advance(RunState.CREATED, RunState.DISCARDED):
            self._leave()
        elif self._advance(RunState.RUNNING, RunState.DISCARDED):
            self._registry.close()

    @property
    def began(self) -> bool:
        """Whether it was ever RUNNING: then it may still be at work after a close."""
        return self._began

    def _leave(self) -> None:
        try:
            self._resources.release()
        finally:
            if self._owner is not None:
                self._owner.unregister(self)

    def _advance(self, before: RunState, after: RunState) -> bool:
        """Compare and set; whether this call did it."""
        with self._lock:
            if self._state is not before:
                return False
            self._state = after
            self._began = self._began or after is RunState.RUNNING
            return True

    def discard(self, result: SnapshotResult, cause: BaseException) -> None:
        """Remove what was written, because nobody receives the result."""
        discard_all(self._streams, result.streams, cause)


class Outcome:
    """What becomes of a call that another thread runs.

    A plain lock holds those who wait. Python's own futures and events are built of several steps: a signal between two
    of them leaves them locked, and then the other thread waits for ever."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self._result: SnapshotResult | None = None
        self._over = False
        self._running = threading.Lock()
        self._running.acquire()

    def run(self, call: Callable[[], SnapshotResult]) -> None:
        """Carry the call out and keep what it returns or raises."""
        try:
            self._result = call()
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it again
            self.error = error
        self._over = True
        self._running.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether the call is over, after ``timeout_s`` at the latest (None: wait until it is)."""
        limit_s = -1 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX)
        return self._over or self._running.acquire(timeout=limit_s)

    def result(self) -> SnapshotResult:
        """Of a call that is over: return what it returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        assert self._result is not None, "it is over"
        return self._result


def start(call: AsyncSnapshotCallable[R]) -> Outcome:
    """Run the call on a thread of its own. Raises RuntimeError where no thread can start."""
    outcome = Outcome()
    _start(call, outcome)
    return outcome


def _start(call: AsyncSnapshotCallable[R], outcome: Outcome) -> None:
    run = contextvars.copy_context().run  # what is logged there is of the same checkpoint
    threading.Thread(target=run, args=(outcome.run, call), name="statelib-snapshot", daemon=True).start()


@contextmanager
def executed_snapshot(
    strategy: SnapshotStrategy[R],
    checkpoint_id: CheckpointId,
    streams: CheckpointStreamFactory,
    registry: CloseableRegistry,
    *,
    execution: SnapshotExecutionType = SnapshotExecutionType.ASYNCHRONOUS,
    timeout_s: float | None = None,
) -> Iterator[Executed]:
    """Both parts of a snapshot, which is reported when this context ends: whatever ends it otherwise, nothing of the
    snapshot is left then. The resources are released whatever happens.

    Closing ``registry`` cancels, from any thread. Raises what the strategy raises, RetryableError (``cancelled``),
    ConflictError (``checkpoint-expired``) after ``timeout_s`` (None: no limit)."""
    started = time.monotonic_ns()
    call: AsyncSnapshotCallable[R] = _prepared(strategy, checkpoint_id, streams)
    outcome = Outcome()
    try:
        frozen = time.monotonic_ns()
        call.cancelled_by(registry)
        _start(call, outcome)
        if not outcome.wait(timeout_s):
            raise expired()
        result = outcome.result()
        done = time.monotonic_ns()
        synchronous = done if execution is SnapshotExecutionType.SYNCHRONOUS else frozen
        yield Executed(result, (synchronous - started) // 1_000_000, (done - synchronous) // 1_000_000)
    except BaseException as error:
        try:
            _end(call, outcome, error)
        except BaseException as second:  # a signal meanwhile: it is raised, but not before nothing is left
            _end(call, outcome, second)
            raise
        raise


def _end(call: AsyncSnapshotCallable[R], outcome: Outcome, cause: BaseException) -> None:
    """Cancel, and wait until the call is over; what it reported nobody receives any more."""
    try:
        call.close()
    except StatelibError as second:
        cause.add_note(f"also while cancelling the snapshot: {second}")
    if not call.began:
        return
    outcome.wait()
    if outcome.error is None:
        call.discard(outcome.result(), cause)


def _prepared(
    strategy: SnapshotStrategy[R], checkpoint_id: CheckpointId, streams: CheckpointStreamFactory
) -> AsyncSnapshotCallable[R]:
    """Freeze the state: what was frozen belongs to the call."""
    resources = strategy.prepare(checkpoint_id)
    try:
        return AsyncSnapshotCallable(strategy, resources, checkpoint_id, streams)
    except BaseException:
        resources.release()
        raise


def expired() -> ConflictError:
    return ConflictError(
        "the checkpoint was not complete before its deadline",
        kind=EXPIRED,
        hint="raise checkpoint.timeout_s of the pipeline file, or clear the run to begin again",
    )
