"""The ratios of a run as an SVG: a bar a row on a logarithmic scale, a mark where its goal is, green if reached."""

import math
from collections.abc import Sequence
from html import escape

from tests.benchmarks.measure import Ratio

_WIDTH, _LINE, _LEFT, _RIGHT = 860, 22, 400, 90
_DECADES = (-3, 2)


def plot(ratios: Sequence[Ratio], below: str) -> str:
    """Of the rows that were measured; ``below``: a line of text under them."""
    rows = [ratio for ratio in ratios if ratio.measured]
    height = _LINE * (len(rows) + 3)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for decade in range(_DECADES[0], _DECADES[1] + 1):
        x = _place(10.0**decade)
        parts.append(f'<line x1="{x}" y1="10" x2="{x}" y2="{height - 2 * _LINE}" stroke="#ddd"/>')
        parts.append(f'<text x="{x}" y="{height - 1.4 * _LINE:.0f}" text-anchor="middle">{10.0**decade:g}</text>')
    for number, ratio in enumerate(rows):
        parts += _bar(ratio, 10 + number * _LINE)
    text = escape(f"ours / theirs, logarithmic; red mark: goal; {below}")
    parts.append(f'<text x="10" y="{height - 8}">{text}</text></svg>')
    return "\n".join(parts) + "\n"


def _bar(ratio: Ratio, y: int) -> list[str]:
    goal, end, one = goal_of(ratio.goal), _place(ratio.ratio), _place(1.0)
    colour = "#999" if goal is None else "#2a6f4e" if ratio.ratio <= goal else "#c98a2b"
    name = escape(f"{ratio.row}  {ratio.what[:34]} / {ratio.against[:26]}")
    parts = [
        f'<text x="{_LEFT - 8}" y="{y + 13}" text-anchor="end">{name}</text>',
        f'<rect x="{min(one, end)}" y="{y + 3}" width="{max(abs(end - one), 1)}" height="13" fill="{colour}"/>',
        f'<text x="{_WIDTH - 8}" y="{y + 13}" text-anchor="end">{ratio.ratio:.3g}</text>',
    ]
    if goal is not None:
        parts.append(f'<rect x="{_place(goal) - 1}" y="{y}" width="2" height="19" fill="#b00"/>')
    return parts


def goal_of(text: str) -> float | None:
    """``≤ 1/6`` as a number; None where there is none."""
    number = text.removeprefix("≤").strip()
    try:
        above, _, under = number.partition("/")
        return float(above) / float(under or 1)
    except ValueError:
        return None


def _place(value: float) -> int:
    low, high = _DECADES
    part = (math.log10(max(value, 1e-9)) - low) / (high - low)
    return round(_LEFT + min(max(part, 0.0), 1.0) * (_WIDTH - _LEFT - _RIGHT))
