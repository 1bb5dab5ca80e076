"""The measurement of a ratio: the contenders take turns, each turn is measured, and medians are divided.

A turn's unit is processor seconds of the whole process tree (Python, JVM, Spark's workers, children), because wall
time on a shared machine includes the work of others; a row whose point is waiting for a disk uses wall seconds and
says so. Turns alternate A B C A B C, so that a slow minute hits everyone."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Literal

from tests.benchmarks.processes import CpuClock

SETTLE_S = 0.5
"""The pause before a turn, in which the JVM's compiler and collector finish the work of the turn before."""

RESOLUTION = 0.01
"""The resolution of the kernel's processor times, in seconds: a divisor is never smaller than this."""

Unit = Literal["cpu s", "wall s", "MB"]


@dataclass(frozen=True)
class Contender:
    """A contender. ``turn(n)`` is measured; ``before(n)`` and ``after(n)``, around it, are not."""

    turn: Callable[[int], object]
    before: Callable[[int], object] | None = None
    after: Callable[[int], object] | None = None


@dataclass(frozen=True)
class Ratio:
    """One row: ``ours`` over ``theirs``, each the figure of every counted turn. ``scaled``: how many times as much
    work ours did as theirs, if theirs is too slow for the whole; ``note``: a remark, in a row without figures the
    reason for that."""

    row: str
    what: str
    against: str
    goal: str
    unit: Unit
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    scaled: float = 1.0
    note: str = ""

    @property
    def ratio(self) -> float:
        return _divide(median(self.ours), median(self.theirs), self.scaled)

    @property
    def spread(self) -> tuple[float, float]:
        """Return the smallest and the largest ratio of one round, which shows how noisy the machine was."""
        each = [_divide(a, b, self.scaled) for a, b in zip(self.ours, self.theirs, strict=True)]
        return min(each), max(each)

    @property
    def measured(self) -> bool:
        return bool(self.ours and self.theirs)

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), **({"ratio": self.ratio, "spread": self.spread} if self.measured else {})}


def _divide(ours: float, theirs: float, scaled: float) -> float:
    return ours / (max(theirs, RESOLUTION) * scaled)


def take_turns(
    contenders: Mapping[str, Contender],
    runs: int,
    warmups: int,
    unit: Unit = "cpu s",
    *,
    without: Collection[int] = (),
) -> dict[str, tuple[float, ...]]:
    """Return the figures of ``runs`` rounds after ``warmups`` that are not counted. Rounds are numbered from 0.

    Every other round begins with the last contender, so that none has an advantage by its position. ``without``:
    processes whose processor time does not count, with their descendants."""
    figures: dict[str, list[float]] = {name: [] for name in contenders}
    with CpuClock(without=without) as cpu:
        clock = time.perf_counter if unit == "wall s" else cpu
        for number in range(warmups + runs):
            for name in list(contenders)[:: -1 if number % 2 else 1]:
                spent = _turn(contenders[name], number, clock)
                if number >= warmups:
                    figures[name].append(spent)
    return {name: tuple(values) for name, values in figures.items()}


def _turn(contender: Contender, number: int, clock: Callable[[], float]) -> float:
    if contender.before:
        contender.before(number)
    time.sleep(SETTLE_S)
    started = clock()
    contender.turn(number)
    spent = clock() - started
    if contender.after:
        contender.after(number)
    return spent


def table(ratios: Sequence[Ratio]) -> str:
    """Return the rows as a Markdown table."""
    lines = ["| row | what | against | ours | theirs | ratio (spread) | goal |", "|---|---|---|---|---|---|---|"]
    for r in ratios:
        ours = theirs = ratio = "-"
        if r.measured:
            ratio = "{:.3g} ({:.3g} to {:.3g})".format(r.ratio, *r.spread)
            ours, theirs = f"{median(r.ours):.2f} {r.unit}", f"{median(r.theirs):.2f} {r.unit}"
        what = f"{r.what} ({r.note})" if r.note else r.what
        lines.append(f"| {r.row} | {what} | {r.against} | {ours} | {theirs} | {ratio} | {r.goal} |")
    return "\n".join(lines)
