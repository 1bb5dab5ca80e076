"""A checkpoint that waits for the acknowledgements of its subtasks.

Spark passes one result per subtask to the driver. But a task may run twice (speculation, a lost executor), and its
result may reach the driver late. The first acknowledgement of a subtask is accepted, later ones are rejected. Nothing
is deleted here: the result of a rejected acknowledgement lists the files that no other one refers to, and the caller
discards them.

Source: docs/spec/requirements.md R147, R150; PendingCheckpoint and TaskAcknowledgeResult of Flink.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from statelib.coordinator.acknowledgements import check_acknowledgement, check_coverage
from statelib.errors import ConflictError
from statelib.model.checkpoint import FileRecord, SubtaskReport
from statelib.model.key_groups import check_parallelism


class AcknowledgeResult(StrEnum):
    """Whether an acknowledgement was accepted, and if not, why."""

    SUCCESS = "SUCCESS"
    """The subtask's state is part of the checkpoint."""
    DUPLICATE = "DUPLICATE"
    """The subtask has acknowledged before: its first acknowledgement remains valid."""
    UNKNOWN = "UNKNOWN"
    """The checkpoint has no such subtask."""
    DISCARDED = "DISCARDED"
    """The checkpoint has been completed already."""


@dataclass(frozen=True)
class Acknowledgement:
    """The result of handling one acknowledgement.

    ``discard``: the files to delete, because only the rejected attempt wrote them and nothing refers to them."""

    result: AcknowledgeResult
    discard: tuple[FileRecord, ...] = ()


@dataclass(frozen=True)
class PendingCheckpoint:
    """The acknowledgements of one checkpoint so far, as an immutable value: each step returns a new one.

    Attributes:
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups.
        completed: Whether all subtasks have acknowledged and :meth:`complete` was called. The catalog records the end
            of a checkpoint that is aborted instead.
        reports: The accepted acknowledgements by subtask.
    """

    parallelism: int
    max_parallelism: int
    completed: bool = False
    reports: Mapping[int, SubtaskReport] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        check_parallelism(self.parallelism, self.max_parallelism)

    @property
    def missing(self) -> tuple[int, ...]:
        """Return the subtasks that have not acknowledged yet."""
        return tuple(subtask for subtask in range(self.parallelism) if subtask not in self.reports)

    def acknowledge(self, report: SubtaskReport) -> tuple["PendingCheckpoint", Acknowledgement]:
        """Return the checkpoint with the acknowledgement ``report`` added if it is accepted, and the result.

        Raises:
            CorruptStateError: The first acknowledgement of a subtask contradicts itself or the others, see
                :func:`~statelib.coordinator.acknowledgements.check_acknowledgement`. The caller then declines the
                checkpoint.
        """
        if self.completed:
            return self, Acknowledgement(AcknowledgeResult.DISCARDED, self._unneeded(report))
        if not 0 <= report.subtask < self.parallelism:
            return self, Acknowledgement(AcknowledgeResult.UNKNOWN, self._unneeded(report))
        if report.subtask in self.reports:
            return self, Acknowledgement(AcknowledgeResult.DUPLICATE, self._unneeded(report))
        first = next(iter(self.reports.values()), report)
        check_acknowledgement(report, first, self.parallelism, self.max_parallelism)
        acknowledged = replace(self, reports={**self.reports, report.subtask: report})
        return acknowledged, Acknowledgement(AcknowledgeResult.SUCCESS)

    def complete(self) -> "PendingCheckpoint":
        """Return the checkpoint as COMPLETED. All subtasks must have acknowledged.

        Raises:
            CorruptStateError: ``missing-acknowledgement``, ``key-groups-not-covered``.
            ConflictError: ``not-pending`` if it has been completed already.
        """
        if self.completed:
            raise ConflictError("a checkpoint that is COMPLETED cannot be completed again", kind="not-pending")
        check_coverage(self.ordered(), self.missing, self.parallelism, self.max_parallelism)
        return replace(self, completed=True)

    def ordered(self) -> list[SubtaskReport]:
        """Return the accepted acknowledgements in the order of their subtasks."""
        return [self.reports[subtask] for subtask in sorted(self.reports)]

    def _unneeded(self, report: SubtaskReport) -> tuple[FileRecord, ...]:
        """Return the files that the attempt of ``report`` wrote and no accepted acknowledgement refers to.

        Files of earlier checkpoints are not among them."""
        needed = {file.path for accepted in self.reports.values() for file in accepted.files}
        return tuple(file for file in report.files if report.wrote(file) and file.path not in needed)
