"""Whether the subtasks' acknowledgements make one whole checkpoint."""

from collections.abc import Iterable, Sequence

from statelib.coordinator.invariants import covers_exactly_once
from statelib.errors import CorruptStateError
from statelib.model.checkpoint import SubtaskReport
from statelib.model.key_groups import check_parallelism, subtask_range


def check_acknowledgements(reports: Sequence[SubtaskReport], parallelism: int, max_parallelism: int) -> None:
    """Accept ``reports`` (any order) only if they are a complete, consistent checkpoint.

    Raises CorruptStateError: ``unknown-subtask``, ``duplicate-acknowledgement``,
    ``missing-acknowledgement``, ``wrong-key-groups`` (of the report, its handle, a file or its
    statistics), ``states-differ`` (subtasks report different numbers of states),
    ``state-without-handle`` (entries counted, none delivered), ``events-lost`` (read differs from
    applied + null key) and ``key-groups-not-covered``; each names the subtask.
    """
    check_parallelism(parallelism, max_parallelism)
    _check_subtasks([r.subtask for r in reports], parallelism)
    for report in reports:
        _check_key_groups(report, parallelism, max_parallelism)
        _check_content(report, reports[0])
    if not covers_exactly_once([r.key_group_range for r in reports], max_parallelism):
        raise CorruptStateError(
            f"the {parallelism} acknowledged ranges do not cover key groups 0-{max_parallelism - 1} exactly once",
            kind="key-groups-not-covered",
        )


def _check_subtasks(subtasks: Sequence[int], parallelism: int) -> None:
    seen: set[int] = set()
    for subtask in subtasks:
        if not 0 <= subtask < parallelism:
            raise CorruptStateError(
                f"acknowledgement of subtask {subtask}: expected 0 to {parallelism - 1}", kind="unknown-subtask"
            )
        if subtask in seen:
            raise CorruptStateError(
                f"subtask {subtask} acknowledged {list(subtasks).count(subtask)} times: expected once",
                kind="duplicate-acknowledgement",
            )
        seen.add(subtask)
    missing = sorted(set(range(parallelism)) - seen)
    if missing:
        raise CorruptStateError(
            f"no acknowledgement of {_some(missing)}: expected {parallelism}, found {len(seen)}",
            kind="missing-acknowledgement",
        )


def _check_key_groups(report: SubtaskReport, parallelism: int, max_parallelism: int) -> None:
    expected = subtask_range(report.subtask, parallelism, max_parallelism)
    claims = [("it", report.key_group_range)]
    if report.keyed is not None:
        claims.append(("its handle", report.keyed.key_group_range))
    claims += [(f"its file {file.path}", file.key_group_range) for file in report.files]
    claims += [(f"its statistics of state {i}", s.key_group_range) for i, s in enumerate(report.statistics)]
    for what, found in claims:
        if found != expected:
            raise CorruptStateError(
                f"subtask {report.subtask}: {what} covers key groups {found}, expected {expected}",
                kind="wrong-key-groups",
            )
    for file in report.files:
        if file.subtask != report.subtask:
            raise CorruptStateError(
                f"subtask {report.subtask}: its file {file.path} belongs to subtask {file.subtask}",
                kind="wrong-key-groups",
            )


def _check_content(report: SubtaskReport, first: SubtaskReport) -> None:
    if len(report.statistics) != len(first.statistics):
        raise CorruptStateError(
            f"subtask {report.subtask} reports {len(report.statistics)} states, "
            f"subtask {first.subtask} reports {len(first.statistics)}",
            kind="states-differ",
        )
    entries = sum(s.total_entries for s in report.statistics)
    if report.keyed is None and entries:
        raise CorruptStateError(
            f"subtask {report.subtask} counted {entries} entries but delivered no state handle",
            kind="state-without-handle",
        )
    events = report.events
    if events.read != events.applied + events.null_key:
        raise CorruptStateError(
            f"subtask {report.subtask} read {events.read} events, but applied {events.applied} "
            f"and dropped {events.null_key} without a key",
            kind="events-lost",
        )


def _some(subtasks: Iterable[int], limit: int = 10) -> str:
    numbers = list(subtasks)
    more = f" and {len(numbers) - limit} more" if len(numbers) > limit else ""
    return f"subtask{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:limit]))}{more}"
