"""The catalog's part of the quality gate: its results, and checkpoints in quarantine."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection, insert, select, update

from statelib.catalog.commit import holdings, leases
from statelib.catalog.engine import Transaction
from statelib.catalog.tables import queries, verdicts
from statelib.catalog.tables.rows import completed_values
from statelib.catalog.tables.schema import CHECKPOINT, QUALITY_RESULT
from statelib.catalog.tables.verdicts import Summaries
from statelib.coordinator.checkpoint_lifecycle import COMMITTED, CheckpointEvent, after, before
from statelib.errors import ConflictError, InvalidRequestError
from statelib.formats.manifest.key_counts_text import key_counts_from_text, key_counts_text
from statelib.model.checkpoint import SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, Epoch, PipelineName
from statelib.model.quality import QualityResult, Severity, verdict
from statelib.model.record import CheckpointRecord, CheckpointState, CommitFacts, PipelineHead, why
from statelib.model.state import KeyCounts

_Q = QUALITY_RESULT.c
_C = CHECKPOINT.c
_WITHOUT_TIMERS = "state:"
"""Before the numbers of keys. Earlier versions wrote numbers alone, and counted keys that have only timers, too."""
_FAILURE = CheckpointFailureReason.FINALIZE_CHECKPOINT_FAILURE


@dataclass(frozen=True)
class Gate:
    """The operations behind ``Catalog.gate``. They raise the errors of every catalog method."""

    transaction: Transaction
    clock: Callable[[], int]

    def record_results(
        self,
        pipeline: PipelineName,
        checkpoint_id: CheckpointId,
        results: Sequence[QualityResult],
        keys: KeyCounts | None = None,
    ) -> int:
        """Write the results of one more run of the gate, and return the number of the run, from 1. ``keys``: the
        numbers of keys, if the gate counted them because the manifest has none."""
        now_ms = self.clock()
        with self.transaction("gate results") as connection:
            leases.lock(connection, pipeline, now_ms)
            run = 1 + verdicts.newest_run(connection, pipeline, checkpoint_id)
            insert_results(connection, (pipeline, checkpoint_id), (run, now_ms), results)
            if keys is not None:
                values = {"keys": keys.total, "key_counts": _WITHOUT_TIMERS + key_counts_text(keys)}
                is_checkpoint = (_C.pipeline == pipeline, _C.checkpoint_id == checkpoint_id)
                connection.execute(update(CHECKPOINT).where(*is_checkpoint).values(values))
            return run

    def key_counts(self, pipeline: PipelineName, checkpoint_id: CheckpointId, max_parallelism: int) -> KeyCounts | None:
        """Return the numbers of keys that the gate counted in a checkpoint, None if it did not count them. It counts
        them if the manifest has none."""
        statement = select(_C.key_counts).where(_C.pipeline == pipeline, _C.checkpoint_id == checkpoint_id)
        with self.transaction(read_only=True) as connection:
            text = connection.execute(statement).scalar_one_or_none()
        if text is None:
            return None
        numbers = text.removeprefix(_WITHOUT_TIMERS)
        try:
            return replace(key_counts_from_text(numbers, max_parallelism), with_timers=numbers == text)
        except ValueError:  # the text is damaged, or has another max_parallelism: the caller counts again
            return None

    def results(self, pipeline: PipelineName, checkpoint_id: CheckpointId) -> tuple[QualityResult, ...]:
        """Return the results of the gate's newest run on a checkpoint, empty if there was none."""
        with self.transaction(read_only=True) as connection:
            return verdicts.results(connection, pipeline, checkpoint_id)

    def has_proved(self, pipeline: PipelineName, checkpoint_id: CheckpointId) -> bool:
        """Return whether the gate has proved a registered checkpoint to be complete: the catalog has results of its
        newest run, and none of them refused the checkpoint."""
        with self.transaction(read_only=True) as connection:
            record = queries.record(connection, pipeline, checkpoint_id)
            results = verdicts.results(connection, pipeline, checkpoint_id)
        return record.state in COMMITTED and bool(results) and verdict(results) is not Severity.FAIL

    def summaries(self, pipeline: PipelineName | None = None) -> Summaries:
        """Return the number of checks in the newest run on each checkpoint that the gate has judged, of one pipeline or
        of all pipelines."""
        with self.transaction(read_only=True) as connection:
            return verdicts.summaries(connection, pipeline)

    def set_aside(
        self, pipeline: PipelineName, checkpoint_id: CheckpointId, epoch: Epoch, facts: CommitFacts, reason: str
    ) -> CheckpointRecord:
        """Put a pending checkpoint into quarantine: its files are recorded and kept, and the head does not change.

        A second call changes nothing. Raises ConflictError (``fenced``: superseded, aborted or completed meanwhile;
        ``file-changed``), NotFoundError."""
        event = CheckpointEvent.SET_ASIDE
        with self.transaction("set aside") as connection:
            now_ms = self.clock()
            leases.lock(connection, pipeline, now_ms)
            record = queries.record(connection, pipeline, checkpoint_id)
            if record.state is CheckpointState.QUARANTINED and record.attempt == facts.attempt:
                return record
            changed = connection.execute(
                update(CHECKPOINT)
                .where(_C.pipeline == pipeline, _C.checkpoint_id == checkpoint_id)
                .where(_C.state.in_(before(event)), _C.epoch == epoch)
                .values({**completed_values(facts, now_ms), **aside(reason)})
            )
            if changed.rowcount != 1:
                raise ConflictError(
                    f"quarantine of {pipeline}/{checkpoint_id} with epoch {epoch} refused: it is {record.state} in "
                    f"epoch {record.epoch}",
                    kind="fenced",
                    hint="another run took over; begin again",
                )
            holdings.open_attempt(connection, pipeline, checkpoint_id, facts.attempt, now_ms)
            holdings.close_attempts(connection, pipeline, checkpoint_id, facts.attempt)
            holdings.record_files(connection, pipeline, checkpoint_id, facts.files, record.owner)
            return queries.record(connection, pipeline, checkpoint_id)

    def release(self, pipeline: PipelineName, checkpoint_id: CheckpointId, owner: str, note: str) -> CheckpointRecord:
        """Accept a checkpoint in quarantine: it becomes COMPLETED and, unless it is a savepoint, the head.

        Takes a new epoch and aborts the pending checkpoint, which would apply the same events again. Raises
        NotFoundError; InvalidRequestError (``not-quarantined``); ConflictError (``overtaken``: the head or generation
        has changed since, so that events would be lost or applied twice)."""
        now_ms, event = self.clock(), CheckpointEvent.RELEASED
        with self.transaction("release") as connection:
            head = leases.lock(connection, pipeline, now_ms)
            record = queries.record(connection, pipeline, checkpoint_id)
            if record.state is not CheckpointState.QUARANTINED:
                raise InvalidRequestError(
                    f"{pipeline}/{checkpoint_id} is {record.state}: only a checkpoint in quarantine can be released",
                    kind="not-quarantined",
                    hint=f"statelib checkpoints list -p {pipeline} --all",
                )
            if record.kind is SnapshotKind.CHECKPOINT:
                _check_not_overtaken(record, head)
                epoch = leases.take_epoch(connection, pipeline, owner, now_ms)
                reason = f"superseded by the release of {checkpoint_id} by {owner}"
                leases.supersede(connection, pipeline, _SUBSUMED, reason, (SnapshotKind.CHECKPOINT,))
                leases.move_head(connection, pipeline, epoch, checkpoint_id, now_ms)
            text = f"released by {owner}: {note or 'no reason given'}; was in quarantine for: {why(record)}"
            values = {"state": after(event), "completed_at_ms": now_ms, "failure": None, "reason": "", "note": text}
            connection.execute(
                update(CHECKPOINT)
                .where(_C.pipeline == pipeline, _C.checkpoint_id == checkpoint_id, _C.state.in_(before(event)))
                .values(values)
            )
            return queries.record(connection, pipeline, checkpoint_id)


_SUBSUMED = CheckpointFailureReason.CHECKPOINT_SUBSUMED


def aside(reason: str) -> dict[str, str | None]:
    """Return the columns that quarantine writes to a row of ``checkpoint``."""
    return {"state": CheckpointState.QUARANTINED, "completed_at_ms": None, "failure": _FAILURE, "reason": reason}


def insert_results(
    connection: Connection,
    place: tuple[PipelineName, CheckpointId],
    run: tuple[int, int],
    results: Sequence[QualityResult],
) -> None:
    """Write one row of ``quality_result`` per result. ``place``: pipeline and id of the checkpoint. ``run``: number and
    time (epoch milliseconds) of the gate's run."""
    where = dict(zip(("pipeline", "checkpoint_id", "run", "at_ms"), (*place, *run), strict=True))
    rows = [{**where, "position": position, **_values(result)} for position, result in enumerate(results)]
    if rows:
        connection.execute(insert(QUALITY_RESULT), rows)


def _values(result: QualityResult) -> dict[str, str | int]:
    return {
        "check_group": result.group,
        "check_name": result.name,
        "severity": result.severity,
        "passed": int(result.passed),
        "checked": result.checked,
        "failed": result.failed,
        "sentences": json.dumps(result.sentences, ensure_ascii=False),
    }


def _check_not_overtaken(record: CheckpointRecord, head: PipelineHead) -> None:
    name = f"{record.pipeline}/{record.checkpoint_id}"
    if (head.head, head.generation) != (record.base, record.generation):
        newest = "none" if head.head is None else f"{record.pipeline}/{head.head}, generation {head.generation}"
        base = "nothing" if record.base is None else f"{record.pipeline}/{record.base}, generation {record.generation}"
        raise ConflictError(
            f"{name} was built on {base}, but the pipeline's head is now {newest}: it cannot be released",
            kind="overtaken",
            hint=f"statelib checkpoints dispose {name} removes it",
        )
