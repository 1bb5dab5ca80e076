"""The differences that a correction would make: counts and a few entries, as data and as Markdown of limited size."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from statelib.model.amounts import amount
from statelib.visible import as_code, visible

MAX_CHARACTERS = 200
"""The length at which the Markdown cuts a key or a value."""
MAX_STATES = 20
"""The number of states of which the Markdown shows entries."""


@dataclass(frozen=True)
class StateDifferences:
    """The changes of one state. ``counts``: the number of entries per kind of change, by its word. ``sample``: some of
    them as text, with the columns of the key, ``change``, ``before`` and ``after``."""

    state: str
    counts: Mapping[str, int]
    sample: tuple[Mapping[str, str], ...]

    def lines(self, *, entries: bool) -> Iterator[str]:
        """Yield Markdown: a line with the counts and, if ``entries``, one per sampled entry."""
        counts = ", ".join(f"{number:,} {word}" for word, number in self.counts.items())
        yield f"- {as_code(self.state)}: {counts}"
        more = sum(self.counts.values()) - len(self.sample)
        if entries:
            yield from (f"    - {_entry(entry)}" for entry in self.sample)
            if more:
                yield f"    - and {amount(more, 'more entry')}"


@dataclass(frozen=True)
class Differences:
    """The changes of all states. ``events``: the number of events of the corrected interval."""

    events: int
    states: tuple[StateDifferences, ...]

    def describe(self) -> str:
        """Return the differences as Markdown, for the person who approves the correction."""
        lines = [f"**Differences, by {amount(self.events, 'event')}**", ""]
        for number, state in enumerate(self.states):
            lines += state.lines(entries=number < MAX_STATES)
        return "\n".join(lines)


def _entry(entry: Mapping[str, str]) -> str:
    key = ", ".join(f"{name.replace('_', ' ')} {_code(text)}" for name, text in entry.items() if name not in _VALUES)
    values = {"added": ("after",), "removed": ("before",), "changed": ("before", "after")}[entry["change"]]
    return f"{entry['change']}, {key}: {' → '.join(_code(entry[name]) for name in values)}"


_VALUES = ("key_group", "change", "before", "after")


def _code(text: str) -> str:
    shown = visible(text)
    return as_code(shown if len(shown) <= MAX_CHARACTERS else f"{shown[:MAX_CHARACTERS]}…")
