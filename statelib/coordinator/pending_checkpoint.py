"""A checkpoint that waits for its subtasks: what each acknowledgement does to it, and when it is whole.

Spark hands the driver one result a subtask, but a task may run twice (speculation, a lost executor), and
a driver may be told late. The first acknowledgement of a subtask wins. Nothing is deleted here: a late
one's files are named, those that nobody else can refer to, and whoever asked discards them.

Source: requirements R147, R150; PendingCheckpoint and TaskAcknowledgeResult of Flink.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from statelib.coordinator.acknowledgements import check_acknowledgement, check_coverage
from statelib.errors import ConflictError
from statelib.model.checkpoint import FileRecord, SubtaskReport
from statelib.model.failure import CheckpointFailureReason
from statelib.model.key_groups import check_parallelism


class AcknowledgeResult(StrEnum):
    SUCCESS = "SUCCESS"
    """The subtask's state is part of the checkpoint."""
    DUPLICATE = "DUPLICATE"
    """The subtask had acknowledged before: that state stands."""
    UNKNOWN = "UNKNOWN"
    """The checkpoint has no such subtask."""
    DISCARDED = "DISCARDED"
    """The checkpoint was completed or aborted before."""


@dataclass(frozen=True)
class Acknowledgement:
    """What became of one. ``discard``: files that only the reporting attempt wrote and that are not needed."""

    result: AcknowledgeResult
    discard: tuple[FileRecord, ...] = ()


class Phase(StrEnum):
    PENDING = "PENDING"
    COMPLETED = "COMPLETED"
    ABORTED = "ABORTED"


@dataclass(frozen=True)
class PendingCheckpoint:
    """A value; each step gives the next one. Only a PENDING one changes.

    ``reports``: the accepted acknowledgements by subtask. ``failure`` is set when it is ABORTED."""

    parallelism: int
    max_parallelism: int
    phase: Phase = Phase.PENDING
    reports: Mapping[int, SubtaskReport] = field(default_factory=dict, repr=False)
    failure: CheckpointFailureReason | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        check_parallelism(self.parallelism, self.max_parallelism)

    @property
    def missing(self) -> tuple[int, ...]:
        """The subtasks that have not acknowledged yet."""
        return tuple(n for n in range(self.parallelism) if n not in self.reports)

    def acknowledge(self, report: SubtaskReport) -> tuple["PendingCheckpoint", Acknowledgement]:
        """Take one acknowledgement.

        Raises CorruptStateError if the first one of a subtask contradicts itself or the others, as
        :func:`~statelib.coordinator.acknowledgements.check_acknowledgement`: the caller declines then.
        """
        if self.phase is not Phase.PENDING:
            return self, Acknowledgement(AcknowledgeResult.DISCARDED, self._unneeded(report))
        if not 0 <= report.subtask < self.parallelism:
            return self, Acknowledgement(AcknowledgeResult.UNKNOWN, self._unneeded(report))
        if report.subtask in self.reports:
            return self, Acknowledgement(AcknowledgeResult.DUPLICATE, self._unneeded(report))
        first = next(iter(self.reports.values()), report)
        check_acknowledgement(report, first, self.parallelism, self.max_parallelism)
        taken = replace(self, reports={**self.reports, report.subtask: report})
        return taken, Acknowledgement(AcknowledgeResult.SUCCESS)

    def complete(self) -> "PendingCheckpoint":
        """All subtasks have acknowledged.

        Raises CorruptStateError (``missing-acknowledgement``, ``key-groups-not-covered``), and
        ConflictError (``not-pending``) where it has ended."""
        self._check_pending("completed")
        check_coverage(self.ordered(), self.missing, self.parallelism, self.max_parallelism)
        return replace(self, phase=Phase.COMPLETED)

    def abort(self, failure: CheckpointFailureReason, reason: str = "") -> "PendingCheckpoint":
        """A subtask declined, the deadline passed, or somebody gave up; an ended one stays as it is."""
        if self.phase is not Phase.PENDING:
            return self
        return replace(self, phase=Phase.ABORTED, failure=failure, reason=reason or failure.message)

    def ordered(self) -> list[SubtaskReport]:
        """The accepted acknowledgements in the order of their subtasks."""
        return [self.reports[subtask] for subtask in sorted(self.reports)]

    def _unneeded(self, report: SubtaskReport) -> tuple[FileRecord, ...]:
        """Files of earlier checkpoints, and those that an accepted acknowledgement has too, are others'."""
        needed = {file.path for accepted in self.reports.values() for file in accepted.files}
        return tuple(file for file in report.files if report.wrote(file) and file.path not in needed)

    def _check_pending(self, what: str) -> None:
        if self.phase is not Phase.PENDING:
            raise ConflictError(
                f"a checkpoint that is {self.phase} cannot be {what}{f': {self.reason}' if self.reason else ''}",
                kind="not-pending",
            )
