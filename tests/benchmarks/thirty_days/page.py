"""The tables of the scoreboard, and the pictures of those in docs/scoreboard.md.

``python -m tests.benchmarks.thirty_days.page`` draws the pictures."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.benchmarks.plots import CHECKOUT, PICTURE, Axis, Bar, plot
from tests.benchmarks.thirty_days.keeper import MODES, Mode
from tests.benchmarks.thirty_days.measuring import Outcome

PAGE = CHECKOUT / "docs" / "scoreboard.md"

HEADER = (
    "| | days | CPU s, sum | median day | worst day | read MB | written MB | peak MB | stored MB"
    " | CPU s to read all | end state |"
)

PICTURES = (("cpu", "median day", -2, 2), ("written", "written MB", -1, 2), ("memory", "peak MB", 1, 4))
"""The name of each picture, its column, and the ends of its axis as powers of ten."""
SUMS = {"written MB": "written MB per day"}
"""The columns that are sums, which are drawn per day, because a mode can have fewer days for some."""


def table(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as a Markdown table."""
    return "\n".join([HEADER, "|" + "---|" * HEADER.count(" | ") + "---|", *(_line(outcome) for outcome in outcomes)])


def _line(outcome: Outcome) -> str:
    if not outcome.cpu_s or outcome.trouble.startswith("FAILED"):
        return f"| {outcome.name} |" + " - |" * 9 + f" {outcome.trouble} |"
    cells = [
        str(len(outcome.cpu_s)),
        f"{sum(outcome.cpu_s):.1f}",
        f"{outcome.median_cpu_s:.2f}",
        f"{max(outcome.cpu_s):.2f}",
        f"{sum(outcome.read_bytes) / 1e6:,.0f}",
        f"{sum(outcome.written_bytes) / 1e6:,.0f}",
        f"{outcome.peak_bytes / 1e6:,.0f}",
        f"{outcome.stored_bytes / 1e6:,.0f}",
        f"{outcome.reading_cpu_s:.2f}",
        outcome.trouble or "right",
    ]
    return f"| {outcome.name} | {' | '.join(cells)} |"


def rows_of(document: str, mode: Mode) -> list[dict[str, str]]:
    """Return the lines of the page's table of a mode, by its columns."""
    part = document.partition(f"\n### {mode.capitalize()}\n")[2].partition(HEADER)[2]
    names = _cells(HEADER)
    lines = part.lstrip("\n").splitlines()[1:]
    rows = []
    for line in lines:
        if not line.startswith("| "):
            break
        rows.append(dict(zip(names, _cells(line), strict=True)))
    return rows


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def pictures(document: str) -> Iterator[tuple[Path, str]]:
    """Yield the pictures of the page's tables, each with its path. Lines without right figures are left out."""
    for mode in MODES:
        right = [row for row in rows_of(document, mode) if row["end state"] == "right"]
        for name, column, low, high in PICTURES:
            bars = [Bar("", row[""], _figure(row, column), is_green=row[""].startswith("statelib")) for row in right]
            axis = Axis(low, high, 10.0**low, f"{mode}: {SUMS.get(column, column)}, logarithmic")
            bars.sort(key=lambda bar: bar.value)
            yield PICTURE.with_name(f"scoreboard-{mode}-{name}.svg"), plot(bars, "green: statelib", axis)


def _figure(row: dict[str, str], column: str) -> float:
    return float(row[column].replace(",", "")) / (int(row["days"]) if column in SUMS else 1)


if __name__ == "__main__":
    for path, drawn in pictures(PAGE.read_text()):
        path.write_text(drawn)
