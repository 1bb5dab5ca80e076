"""Checks of the acknowledgements of a checkpoint, one by one and all together.

The module ``pending_checkpoint`` decides when they run.
"""

from collections.abc import Iterable, Sequence

from statelib.coordinator.invariants import covers_exactly_once
from statelib.errors import CorruptStateError
from statelib.model.amounts import number_of
from statelib.model.checkpoint import SubtaskReport
from statelib.model.key_groups import subtask_range


def check_acknowledgement(report: SubtaskReport, first: SubtaskReport, parallelism: int, max_parallelism: int) -> None:
    """Raise an error if ``report`` contradicts itself or an acknowledgement that was accepted before.

    Args:
        report: The acknowledgement of one subtask.
        first: The first acknowledgement that the checkpoint accepted; ``report`` itself if there is none yet.
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups.

    Raises:
        CorruptStateError: ``wrong-key-groups`` if the report, its handle, a file or its statistics cover other key
            groups than the subtask owns; ``states-differ`` if two subtasks report different numbers of states;
            ``state-without-handle`` if the subtask counted entries but delivered no handle; ``events-lost`` if the
            number of events read is not the sum of those applied and those without a key. Each names the subtask.
    """
    _check_key_groups(report, parallelism, max_parallelism)
    _check_content(report, first)


def check_coverage(
    reports: Sequence[SubtaskReport], missing: Sequence[int], parallelism: int, max_parallelism: int
) -> None:
    """Raise an error unless all subtasks have acknowledged and together cover each key group exactly once.

    Args:
        reports: The accepted acknowledgements.
        missing: The subtasks that have not acknowledged.
        parallelism: The number of subtasks.
        max_parallelism: The number of key groups.

    Raises:
        CorruptStateError: ``missing-acknowledgement``, ``key-groups-not-covered``.
    """
    if missing:
        raise CorruptStateError(
            f"no acknowledgement of {_numbered(missing)}: expected {parallelism}, found {len(reports)}",
            kind="missing-acknowledgement",
        )
    if not covers_exactly_once([r.key_group_range for r in reports], max_parallelism):
        raise CorruptStateError(
            f"the {parallelism} acknowledged ranges do not cover key groups 0-{max_parallelism - 1} exactly once",
            kind="key-groups-not-covered",
        )


def _check_key_groups(report: SubtaskReport, parallelism: int, max_parallelism: int) -> None:
    """Raise CorruptStateError if a part of ``report`` belongs to other key groups, or to another subtask."""
    expected = subtask_range(report.subtask, parallelism, max_parallelism)
    claims = [("it", report.key_group_range)]
    if report.keyed is not None:
        claims.append(("its handle", report.keyed.key_group_range))
    claims += [(f"its file {file.path}", file.key_group_range) for file in report.files]
    claims += [(f"its statistics of state {i}", s.key_group_range) for i, s in enumerate(report.statistics)]
    for what, key_groups in claims:
        if key_groups != expected:
            raise CorruptStateError(
                f"subtask {report.subtask}: {what} covers key groups {key_groups}, expected {expected}",
                kind="wrong-key-groups",
            )
    for file in report.files:
        if file.subtask != report.subtask:
            raise CorruptStateError(
                f"subtask {report.subtask}: its file {file.path} belongs to subtask {file.subtask}",
                kind="wrong-key-groups",
            )


def _check_content(report: SubtaskReport, first: SubtaskReport) -> None:
    """Raise CorruptStateError if the counts of states, entries or events do not agree."""
    if len(report.statistics) != len(first.statistics):
        raise CorruptStateError(
            f"subtask {report.subtask} reports {number_of(len(report.statistics), 'state')}, "
            f"subtask {first.subtask} reports {len(first.statistics)}",
            kind="states-differ",
        )
    entries = sum(s.total_entries for s in report.statistics)
    if report.keyed is None and entries:
        raise CorruptStateError(
            f"subtask {report.subtask} counted {number_of(entries, 'entry')} but delivered no state handle",
            kind="state-without-handle",
        )
    events = report.events
    if events.read != events.applied + events.null_key:
        raise CorruptStateError(
            f"subtask {report.subtask} read {number_of(events.read, 'event')}, but applied {events.applied} "
            f"and dropped {events.null_key} without a key",
            kind="events-lost",
        )


def _numbered(subtasks: Iterable[int], limit: int = 10) -> str:
    """Return the numbers of the subtasks in words, at most ``limit`` of them."""
    numbers = list(subtasks)
    more = f" and {len(numbers) - limit} more" if len(numbers) > limit else ""
    return f"subtask{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:limit]))}{more}"
