"""What the quality gate says of a checkpoint: plain values, as the catalog keeps them."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """What follows from a check that does not hold. The names are stored in the catalog: append-only."""

    WARN = "WARN"
    """The checkpoint is registered, and the warning is shown wherever it is."""
    QUARANTINE = "QUARANTINE"
    """It is kept aside for inspection, and nothing is built on it."""
    FAIL = "FAIL"
    """It is aborted."""


GRAVITY = (Severity.WARN, Severity.QUARANTINE, Severity.FAIL)
"""The mildest first."""


@dataclass(frozen=True)
class QualityResult:
    """One check: ``checked`` rows were judged, ``failed`` of them did not hold. ``group``: what it belongs to, which
    is also the name of its page in the report. ``sentences``: what is wrong, naming file, state and key groups; of a
    check that passed, what is to be known of it, such as that a sample was judged."""

    group: str
    name: str
    severity: Severity
    passed: bool
    checked: int
    failed: int
    sentences: tuple[str, ...] = ()


def verdict(results: Iterable[QualityResult]) -> Severity | None:
    """What follows from all of them: the gravest severity that did not hold; None if all did."""
    failed = {result.severity for result in results if not result.passed}
    return max(failed, key=GRAVITY.index, default=None)


@dataclass(frozen=True)
class GateSummary:
    """The newest run of the gate in numbers. ``failed``: checks whose severity stops a checkpoint; ``warned``: the
    others that did not hold."""

    checked: int
    failed: int
    warned: int

    @property
    def passed(self) -> bool:
        return self.failed == 0
