"""The execution of one snapshot: the synchronous part on the caller's thread, the rest on a thread of its own.

The caller's thread only waits for that thread, whatever the execution type is. Python raises the exception of a signal
on the main thread, between any two of its steps; so it never interrupts a step that creates a file. The first call that
moves the snapshot out of the state RUNNING decides its outcome: its result is returned, or all it wrote is discarded.

Source: docs/spec/requirements.md R15, R138, R139, R143 to R146; AsyncSnapshotCallable, SnapshotExecutionType of Flink.
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
from statelib.snapshots.uploads.streams import cancelled, discard_all
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointStreamFactory

R = TypeVar("R", bound=SnapshotResources)


EXPIRED = "checkpoint-expired"
"""The kind of the error that is raised if a snapshot is not complete before its deadline."""

PATIENCE_S = 120.0
"""The number of seconds to wait for the end of a cancelled snapshot. A request to an object storage fails after half of
that."""


class SnapshotExecutionType(StrEnum):
    """The two ways to measure the synchronous part of a snapshot."""

    SYNCHRONOUS = "sync"
    """The synchronous part ends when the whole snapshot is complete."""
    ASYNCHRONOUS = "async"
    """The synchronous part ends when the state is frozen."""


class RunState(StrEnum):
    """The states of an :class:`AsyncSnapshotCallable`. The last two are final."""

    CREATED = "CREATED"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    DISCARDED = "DISCARDED"


@dataclass(frozen=True)
class Executed:
    """The result of a snapshot, and the duration of its synchronous and asynchronous part in milliseconds."""

    result: SnapshotResult
    sync_ms: int
    async_ms: int


class AsyncSnapshotCallable(Generic[R]):
    """The part of a snapshot that does I/O. It is called once, from any thread.

    Any other thread may close it. It owns ``resources`` and releases them exactly once, even if it is closed
    before it is called. If a close ends it, all it wrote is removed.

    Args:
        strategy: The strategy that writes the snapshot.
        resources: The frozen state.
        checkpoint_id: The id of the checkpoint.
        streams: The storage to write to.
    """

    def __init__(
        self,
        strategy: SnapshotStrategy[R],
        resources: R,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
    ) -> None:
        self._strategy = strategy
        self._resources = resources
        self.checkpoint_id = checkpoint_id
        self._streams = streams
        self._owner: CloseableRegistry | None = None
        self._registry = CloseableRegistry()
        self._lock = threading.Lock()
        self._state = RunState.CREATED
        self._began = False

    def cancelled_by(self, owner: CloseableRegistry) -> None:
        """Register this call with ``owner``, so that closing ``owner`` cancels it. The end of the call unregisters it.

        Raises:
            RetryableError: ``cancelled`` if ``owner`` is closed already. Then this call is closed too.
        """
        self._owner = owner
        owner.register(self)

    @property
    def state(self) -> RunState:
        """Return the present state."""
        return self._state

    def __call__(self) -> SnapshotResult:
        """Write the snapshot and return its result.

        Raises:
            RetryableError: ``cancelled`` if the call was closed before or meanwhile.
            StatelibError: The errors of the strategy.
        """
        if not self._advance(RunState.CREATED, RunState.RUNNING):
            raise cancelled()
        try:
            result = self._strategy.run(self._resources, self.checkpoint_id, self._streams, self._registry)
        except BaseException:
            self._advance(RunState.RUNNING, RunState.DISCARDED)
            raise
        finally:
            self._release()
        if not self._advance(RunState.RUNNING, RunState.COMPLETED):
            error = cancelled()
            self.discard(result, error)
            raise error
        return result

    def close(self) -> None:
        """Cancel the call. If it is COMPLETED already, do nothing: its result belongs to the caller."""
        if self._advance(RunState.CREATED, RunState.DISCARDED):
            self._release()
        elif self._advance(RunState.RUNNING, RunState.DISCARDED):
            self._registry.close()

    @property
    def began(self) -> bool:
        """Return whether the call was ever RUNNING. If so, it may still be at work after a close."""
        return self._began

    def _release(self) -> None:
        """Release the frozen state and unregister this call from its owner."""
        try:
            self._resources.release()
        finally:
            if self._owner is not None:
                self._owner.unregister(self)

    def _advance(self, before: RunState, after: RunState) -> bool:
        """Change the state from ``before`` to ``after`` and return True; else return False."""
        with self._lock:
            if self._state is not before:
                return False
            self._state = after
            self._began = self._began or after is RunState.RUNNING
            return True

    def discard(self, result: SnapshotResult, cause: BaseException) -> None:
        """Remove the streams of ``result``. Errors are added to ``cause`` as notes."""
        discard_all(self._streams, result.streams, cause)


class Outcome:
    """The outcome of a call that another thread runs.

    Threads wait on a plain lock. Python's futures and events take several steps: a signal between two of them leaves
    their locks held, and then the other thread waits for ever."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        """The exception that the call raised; None if it has not ended, or has returned."""
        self._result: SnapshotResult | None = None
        self._over = False
        self._running = threading.Lock()
        self._running.acquire()

    def run(self, call: Callable[[], SnapshotResult]) -> None:
        """Call ``call``, and store what it returns or raises."""
        try:
            self._result = call()
        except BaseException as error:  # noqa: BLE001 - the waiting thread raises it again
            self.error = error
        self._over = True
        self._running.release()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until the call has ended, for at most ``timeout_s`` seconds, and return whether it has ended.

        None means no limit."""
        limit_s = -1 if timeout_s is None else min(max(timeout_s, 0), threading.TIMEOUT_MAX)
        return self._over or self._running.acquire(timeout=limit_s)

    def result(self) -> SnapshotResult:
        """Return what the call returned, or raise what it raised. The call must have ended."""
        if self.error is not None:
            raise self.error
        assert self._result is not None, "it is over"
        return self._result


def start(call: AsyncSnapshotCallable[R]) -> Outcome:
    """Run the call on a new thread and return its future outcome. Raise RuntimeError if no thread can start."""
    outcome = Outcome()
    _start(call, outcome)
    return outcome


def _start(call: AsyncSnapshotCallable[R], outcome: Outcome) -> None:
    """Run the call on a new thread, which fills ``outcome``."""
    run = contextvars.copy_context().run  # log lines of that thread name the same checkpoint
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
    patience_s: float = PATIENCE_S,
) -> Iterator[Executed]:
    """Take a snapshot and yield its result. If the ``with`` block raises an error, the snapshot is removed.

    The frozen state is released even after an error. Closing ``registry``, from any thread, cancels the snapshot.
    ``timeout_s`` is the time limit in seconds, None for no limit. ``patience_s`` is the time limit for the end of the
    snapshot's thread after a cancel. A thread that exceeds it is left alone, which a note of the exception says. It
    removes what it wrote if it ends while the process lives.

    Raises the errors of the strategy, RetryableError (``cancelled``), and ConflictError (``checkpoint-expired``) if the
    time limit is exceeded."""
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
            _discard_call(call, outcome, error, patience_s)
        except BaseException as second:  # a signal meanwhile: remove the snapshot, then raise it
            _discard_call(call, outcome, second, patience_s)
            raise
        raise


def _discard_call(call: AsyncSnapshotCallable[R], outcome: Outcome, cause: BaseException, patience_s: float) -> None:
    """Cancel the call, wait until it has ended, and remove what it wrote. Errors are added to ``cause`` as notes.

    The wait has a limit, because the thread of the call may never end: a signal can interrupt Python's ``logging`` on
    the main thread while it holds a lock of a log handler, and then every other thread waits for that lock."""
    try:
        call.close()
    except StatelibError as close_error:
        cause.add_note(f"also while cancelling the snapshot: {close_error}")
    if not call.began:
        return
    if not outcome.wait(patience_s):
        cause.add_note(
            f"the thread that writes the snapshot of checkpoint {call.checkpoint_id} did not end within"
            f" {patience_s:g} s of its cancellation and is left alone: files of this attempt may stay on the storage,"
            " and 'statelib orphans --delete' removes them once the attempt has ended"
        )
        return
    if outcome.error is None:
        call.discard(outcome.result(), cause)


def _prepared(
    strategy: SnapshotStrategy[R], checkpoint_id: CheckpointId, streams: CheckpointStreamFactory
) -> AsyncSnapshotCallable[R]:
    """Freeze the state, and return the call that owns the frozen state and writes it."""
    resources = strategy.prepare(checkpoint_id)
    try:
        return AsyncSnapshotCallable(strategy, resources, checkpoint_id, streams)
    except BaseException:
        resources.release()
        raise


def expired() -> ConflictError:
    """Return the error of a snapshot that was not complete before its deadline."""
    return ConflictError(
        "the checkpoint was not complete before its deadline",
        kind=EXPIRED,
        hint="raise checkpoint.timeout_s of the pipeline file, or clear the run to begin again",
    )
