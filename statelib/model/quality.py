"""The results of the quality gate for a checkpoint: plain values, in the form in which the catalog stores them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The consequence of a check that fails. The names are stored in the catalog: add new ones, change none."""

    WARN = "WARN"
    """The checkpoint is registered, and the warning is shown wherever the checkpoint is shown."""
    QUARANTINE = "QUARANTINE"
    """The checkpoint is kept for inspection, and no other checkpoint is built on it."""
    FAIL = "FAIL"
    """The checkpoint is aborted."""


GRAVITY = (Severity.WARN, Severity.QUARANTINE, Severity.FAIL)
"""The severities from the mildest to the gravest."""


@dataclass(frozen=True)
class QualityResult:
    """The result of one check: ``failed`` of ``checked`` rows did not pass. ``group``: the group of checks, which is
    also the name of its page in the report. ``sentences``: the problems, with file, state and key groups; if the check
    passed, remarks, for example that only a sample was checked."""

    group: str
    name: str
    severity: Severity
    passed: bool
    checked: int
    failed: int
    sentences: tuple[str, ...] = ()


def verdict(results: Iterable[QualityResult]) -> Severity | None:
    """Return the gravest severity of the checks that failed; None if all passed."""
    failed = {result.severity for result in results if not result.passed}
    return max(failed, key=GRAVITY.index, default=None)


@dataclass(frozen=True)
class GateSummary:
    """The newest run of the gate in numbers of checks. ``failed``: failed checks whose severity stops a checkpoint;
    ``warned``: the other failed checks."""

    checked: int
    failed: int
    warned: int

    @property
    def passed(self) -> bool:
        """Whether the gate let the checkpoint pass, warnings or not."""
        return self.failed == 0
