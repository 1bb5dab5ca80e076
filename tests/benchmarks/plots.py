"""Figures as an SVG: one bar per row on a logarithmic scale, for ratios with a mark at the goal, green if it is met.

``python -m tests.benchmarks.plots`` draws the table of PERFORMANCE.md into the picture of that page."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tests.benchmarks.measure import Ratio

CHECKOUT = Path(__file__).resolve().parents[2]
PICTURE = CHECKOUT / "docs" / "pictures" / "benchmarks.svg"
_WIDTH, _LINE, _LEFT, _RIGHT = 920, 22, 460, 90
_LETTERS = 66
_GREEN = "#2a6f4e"
_NUMBER = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Bar:
    """A bar of the plot. ``what``: the text beside the name; ``goal``: None if there is none; ``is_green``: whether it
    is green without a goal."""

    row: str
    what: str
    value: float
    goal: float | None = None
    is_green: bool = False


@dataclass(frozen=True)
class Axis:
    """The axis of a plot. ``low`` and ``high``: its ends, as powers of ten; ``start``: the value where bars begin;
    ``legend``: the text that explains them."""

    low: int
    high: int
    start: float
    legend: str

    def place(self, value: float) -> int:
        part = (math.log10(max(value, 1e-9)) - self.low) / (self.high - self.low)
        return round(_LEFT + min(max(part, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT))


RATIOS = Axis(-3, 2, 1.0, "ours / theirs, logarithmic; red mark: goal")


def bars_of(ratios: Sequence[Ratio]) -> list[Bar]:
    """Return the bars of the measured rows of a run."""
    return [
        Bar(ratio.row, f"{ratio.what[:34]} / {ratio.against[:26]}", ratio.ratio, goal_of(ratio.goal))
        for ratio in ratios
        if ratio.measured
    ]


def bars_in(document: str) -> list[Bar]:
    """Return the bars of PERFORMANCE.md's table of ratios, each with the first figure of its row; a row without a
    figure is left out."""
    lines = document.partition("| row | ours / theirs |")[2].splitlines()[2:]
    bars: list[Bar] = []
    for line in lines:
        if not line.startswith("| "):
            break
        row, what, goal, measured, _ = (cell.strip() for cell in line.removeprefix("|").split("|")[:5])
        figure = None if measured.startswith("not measured") else _NUMBER.search(measured)
        if figure:
            bars.append(Bar(row, _short(what), float(figure[0]), goal_of(goal)))
    return bars


def _short(what: str) -> str:
    return what if len(what) <= _LETTERS else what[: _LETTERS - 1] + "…"


def plot(bars: Sequence[Bar], below: str, axis: Axis = RATIOS) -> str:
    """Return the plot of the bars as SVG. ``below``: a text under them, after the legend."""
    height = _LINE * (len(bars) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for decade in range(axis.low, axis.high + 1):
        x = axis.place(10.0**decade)
        parts.append(f'<line x1="{x}" y1="10" x2="{x}" y2="{height - 2 * _LINE}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{height - 1.4 * _LINE:.0f}" text-anchor="middle">{10.0**decade:g}</text>')
    for number, bar in enumerate(bars):
        parts += _drawn(bar, 10 + number * _LINE, axis)
    text = escape(f"{axis.legend}; {below}")
    parts.append(f'<text x="10" y="{height - 8}">{text}</text></svg>')
    return "\n".join(parts) + "\n"


def _drawn(bar: Bar, y: int, axis: Axis) -> list[str]:
    end, start = axis.place(bar.value), axis.place(axis.start)
    colour = _GREEN if bar.is_green else "#999" if bar.goal is None else _GREEN if bar.value <= bar.goal else "#c98a2b"
    name = escape(f"{bar.row}: {bar.what}" if bar.row else bar.what)
    parts = [
        f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{name}</text>',
        f'<rect x="{min(start, end)}" y="{y + 3}" width="{max(abs(end - start), 1)}" height="13" fill="{colour}"/>',
        f'<text x="{_WIDTH - 8}" y="{y + 13}" text-anchor="end">{_text(bar.value)}</text>',
    ]
    if bar.goal is not None:
        parts.append(f'<rect x="{axis.place(bar.goal) - 1}" y="{y}" width="2" height="19" fill="#b00"/>')
    return parts


def goal_of(text: str) -> float | None:
    """Return a goal such as ``≤ 1/6`` as a number, or None if there is none."""
    number = text.removeprefix("≤").strip()
    try:
        above, _, under = number.partition("/")
        return float(above) / float(under or 1)
    except ValueError:
        return None


def _text(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def picture() -> str:
    """Return the picture of the table in PERFORMANCE.md."""
    return plot(bars_in((CHECKOUT / "PERFORMANCE.md").read_text()), "PERFORMANCE.md has the dates and the spreads")


if __name__ == "__main__":
    PICTURE.write_text(picture())
