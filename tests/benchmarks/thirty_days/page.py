"""The tables of the scoreboard, and the pictures that are drawn from those of docs/scoreboard.md."""

from collections.abc import Sequence

from tests.benchmarks.thirty_days.measuring import Outcome

HEADER = (
    "| | days | CPU s, sum | median day | worst day | read MB | written MB | peak MB | stored MB"
    " | CPU s to read all | end state |"
)


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
