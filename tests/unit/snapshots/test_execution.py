"""One snapshot, on this thread or on another: whoever ends it first decides, and files that are not reported are
removed."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.errors import ConflictError, RetryableError
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import all_key_groups
from statelib.snapshots.execution import (
    PATIENCE_S,
    AsyncSnapshotCallable,
    Executed,
    RunState,
    SnapshotExecutionType,
    executed_snapshot,
    start,
)
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy, ScanResources
from statelib.snapshots.strategy import SnapshotResult
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointStreamFactory
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.faulty_streams import FaultyStreams, Hook, undisturbed
from statelib.testing.interruptions import no_thread_starts
from statelib.testing.keyed_samples import fill, sample_schema

FIRST = CheckpointId(1)
BOTH = tuple(SnapshotExecutionType)


class Resources(ScanResources):
    """A resource that counts how often it was released."""

    released = 0

    def release(self) -> None:
        self.released += 1
        super().release()


class Strategy(CanonicalSnapshotStrategy):
    """The canonical strategy, which records its thread and calls the test once everything is written."""

    def __init__(self, backend: HeapKeyedStateBackend) -> None:
        super().__init__(backend)
        self.threads: list[str] = []
        self.resources: list[Resources] = []
        self.written: Callable[[], None] = lambda: None
        self.on_cancel: Callable[[], None] = lambda: None
        """The function that is called when the open streams of the snapshot are closed from outside."""

    def prepare(self, checkpoint_id: CheckpointId) -> Resources:
        self.resources.append(Resources(super().prepare(checkpoint_id).scans))
        return self.resources[-1]

    def run(
        self,
        resources: ScanResources,
        checkpoint_id: CheckpointId,
        streams: CheckpointStreamFactory,
        registry: CloseableRegistry,
    ) -> SnapshotResult:
        self.threads.append(threading.current_thread().name)
        registry.register(_OnClose(self.on_cancel))
        result = super().run(resources, checkpoint_id, streams, registry)
        self.written()
        return result


class Stage:
    def __init__(self, root: Path) -> None:
        schema = sample_schema()
        self.backend = HeapKeyedStateBackend(schema, all_key_groups(schema.max_parallelism))
        fill(self.backend)
        self.chain = CheckpointChain(root)
        self.strategy = Strategy(self.backend)
        self.registry = CloseableRegistry()

    def streams(self, before: Hook = undisturbed) -> CheckpointStreamFactory:
        return FaultyStreams(self.chain.streams(1), before)

    def call(self, before: Hook = undisturbed) -> AsyncSnapshotCallable[ScanResources]:
        resources = self.strategy.prepare(FIRST)
        call = AsyncSnapshotCallable(self.strategy, resources, FIRST, self.streams(before))
        call.cancelled_by(self.registry)
        return call

    def take(
        self,
        before: Hook = undisturbed,
        execution: SnapshotExecutionType = SnapshotExecutionType.ASYNCHRONOUS,
        timeout_s: float | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Executed:
        """Take a snapshot that is reported."""
        snapshot = executed_snapshot(
            self.strategy,
            FIRST,
            self.streams(before),
            self.registry,
            execution=execution,
            timeout_s=timeout_s,
            patience_s=patience_s,
        )
        with snapshot as done:
            return done

    def is_clean(self) -> bool:
        """Return whether storage is empty, nothing is left to cancel, and the frozen view was released once."""
        return self.chain.files() == set() and all(r.released == 1 for r in self.strategy.resources)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.backend.close()


@pytest.mark.parametrize("execution", BOTH)
def test_both_ways_of_execution_have_the_same_result(stage: Stage, execution: SnapshotExecutionType):
    done = stage.take(execution=execution)
    (written,) = done.result.streams
    assert written.size_bytes > 0
    assert len(stage.chain.files()) == 1
    assert stage.strategy.threads == ["statelib-snapshot"], "whoever asked only waits"
    if execution is SnapshotExecutionType.SYNCHRONOUS:
        assert done.async_ms == 0
    assert stage.strategy.resources[0].released == 1
    stage.registry.close()
    assert len(stage.chain.files()) == 1, "what was reported is not its own any more"


def test_both_parts_of_a_snapshot_are_timed(stage: Stage):
    """Requirement R137: freezing is the synchronous part, writing the asynchronous one."""
    freeze = stage.strategy.prepare

    def slowly(checkpoint_id: CheckpointId) -> Resources:
        time.sleep(0.03)
        return freeze(checkpoint_id)

    stage.strategy.prepare = slowly
    stage.strategy.written = lambda: time.sleep(0.06)
    done = stage.take()
    assert done.sync_ms >= 30
    assert done.async_ms >= 60
    assert stage.take(execution=SnapshotExecutionType.SYNCHRONOUS).sync_ms >= 90


def test_a_snapshot_that_has_ended_is_no_longer_registered(stage: Stage):
    """Requirement R146: closing the registry later cancels nothing of this snapshot."""
    call = stage.call()
    call()
    assert not stage.registry.unregister(call)

    def fail(_number: int) -> None:
        raise OSError("no space left")

    failing = stage.call(fail)
    with pytest.raises(OSError, match="no space left"):
        failing()
    assert not stage.registry.unregister(failing)


@pytest.mark.parametrize("execution", BOTH)
def test_a_cancel_in_the_middle_leaves_nothing(stage: Stage, execution: SnapshotExecutionType):
    def cancel(number: int) -> None:
        if number == 2:
            thread = threading.Thread(target=stage.registry.close)
            thread.start()
            thread.join()

    with pytest.raises(RetryableError) as refusal:
        stage.take(cancel, execution)
    assert refusal.value.kind == "cancelled"
    assert stage.is_clean()


@pytest.mark.parametrize("execution", BOTH)
def test_a_failure_is_raised_and_leaves_nothing(stage: Stage, execution: SnapshotExecutionType):
    def fail(number: int) -> None:
        if number == 2:
            raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        stage.take(fail, execution)
    assert stage.is_clean()


@pytest.mark.parametrize("execution", BOTH)
def test_a_cancel_before_the_report_discards_a_written_snapshot(stage: Stage, execution: SnapshotExecutionType):
    stage.strategy.written = stage.registry.close
    with pytest.raises(RetryableError, match="cancelled"):
        stage.take(execution=execution)
    assert stage.is_clean()


def test_a_snapshot_that_is_cancelled_before_it_runs_writes_nothing(stage: Stage):
    call = stage.call()
    stage.registry.close()
    assert (call.state, stage.is_clean()) == (RunState.DISCARDED, True)
    outcome = start(call)
    assert outcome.wait(60)
    assert isinstance(outcome.error, RetryableError)
    assert stage.strategy.threads == []


def test_a_cancelled_registry_refuses_a_snapshot(stage: Stage):
    stage.registry.close()
    with pytest.raises(RetryableError, match="cancelled"):
        stage.take()
    assert stage.is_clean()


def test_exactly_one_of_concurrent_cancels_and_the_end_decides(stage: Stage):
    """In this race the outcome is one of two, and files exist if and only if the snapshot was reported."""
    for _ in range(30):
        call = stage.call()
        closer = threading.Thread(target=call.close)
        outcome = start(call)
        closer.start()
        assert outcome.wait(60)
        error = outcome.error
        closer.join()
        assert call.state is (RunState.COMPLETED if error is None else RunState.DISCARDED)
        assert len(stage.chain.files()) == (error is None)
        if error is None:
            call.discard(outcome.result(), RuntimeError())
    assert stage.is_clean()


def test_a_deadline_ends_a_snapshot_that_hangs(stage: Stage):
    closed = threading.Event()
    stage.strategy.on_cancel = closed.set

    def wait(number: int) -> None:
        if number == 2:
            # The stream behaves like a slow storage: a write ends when its stream is closed from outside.
            closed.wait(PATIENCE_S)

    with pytest.raises(ConflictError) as refusal:
        stage.take(wait, timeout_s=0.01)
    assert closed.is_set(), "the deadline closes what the snapshot has open"
    assert refusal.value.kind == "checkpoint-expired"
    assert "checkpoint.timeout_s" in refusal.value.hint
    assert stage.is_clean()


class _InterruptedHandler(logging.Handler):
    """A log handler during whose ``acquire`` a signal arrives on the main thread, as soon as the lock is taken."""

    def acquire(self) -> None:
        super().acquire()
        if threading.current_thread() is threading.main_thread():
            raise SystemExit("a signal")

    def emit(self, record: logging.LogRecord) -> None:
        pass


def test_a_thread_that_waits_for_a_log_handlers_lock_is_abandoned_after_the_deadline(stage: Stage):
    handler, log = _InterruptedHandler(), logging.getLogger("test.interrupted")
    log.addHandler(handler)
    ends: list[threading.Thread] = []

    def write_and_log(number: int) -> None:
        if number == 2:
            ends.append(threading.current_thread())
            log.error("a line of the thread that writes the snapshot")

    with pytest.raises(SystemExit):
        log.error("a line of the main thread")
    try:
        with pytest.raises(ConflictError) as refusal:
            stage.take(write_and_log, timeout_s=0.2, patience_s=0.1)
        assert refusal.value.kind == "checkpoint-expired"
        (note,) = refusal.value.__notes__
        assert f"checkpoint {FIRST} did not end within 0.1 s" in note
        assert "statelib orphans --delete" in note
        assert ends[0].is_alive()
    finally:
        handler.release()
        log.removeHandler(handler)
    ends[0].join(PATIENCE_S)
    assert stage.is_clean(), "the thread removes what it wrote, if it comes to its end"


@pytest.mark.parametrize("execution", BOTH)
def test_a_thread_that_cannot_start_leaves_nothing(stage: Stage, execution: SnapshotExecutionType):
    with no_thread_starts(0), pytest.raises(RuntimeError, match="can't start new thread"):
        stage.take(execution=execution)
    assert stage.is_clean()
    stage.take()


def test_a_failed_report_leaves_nothing(stage: Stage):
    snapshot = executed_snapshot(stage.strategy, FIRST, stage.streams(), stage.registry)
    snapshot.__enter__()
    assert len(stage.chain.files()) == 1
    error = OSError("no space left")
    assert not snapshot.__exit__(type(error), error, None)
    assert stage.is_clean()


class _OnClose:
    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close
