"""The plan of a correction: what it would read, as data, as JSON and as Markdown."""

import json
from dataclasses import asdict, dataclass

from statelib.definition.source.parts import range_text
from statelib.model.amounts import amount
from statelib.model.checkpoint import DataInterval
from statelib.visible import as_markdown


@dataclass(frozen=True)
class MendPlan:
    """The plan of the correction of one interval.

    Attributes:
        checkpoint_id: The head, which the correction builds on.
        start_ms: The start of the interval, and ``end_ms`` its end.
        sources: The places of the interval's events.
        later: The number of intervals after it, whose events are not read.
        delta_bytes: The size of the deltas of the interval and of the later ones.
        state_bytes: The size of the head, which is restored as for any run.
    """

    pipeline: str
    checkpoint_id: int
    start_ms: int
    end_ms: int
    sources: tuple[str, ...]
    later: int
    delta_bytes: int
    state_bytes: int

    @property
    def interval(self) -> DataInterval:
        """The interval to correct."""
        return DataInterval(self.start_ms, self.end_ms)

    def to_json(self) -> str:
        """Return the plan as JSON, for :meth:`from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "MendPlan":
        """Return the plan that :meth:`to_json` wrote."""
        values = json.loads(text)
        return MendPlan(**{**values, "sources": tuple(values["sources"])})

    def lines(self) -> tuple[str, ...]:
        """Return what would happen, one sentence per line."""
        return (
            f"interval: {range_text(self.interval)}",
            f"builds on: checkpoint {self.checkpoint_id}, {amount(self.state_bytes, 'byte')}",
            f"reads the events of: {', '.join(self.sources)}",
            f"reads the deltas of: the interval and {self.later} after it, {amount(self.delta_bytes, 'byte')}",
        )

    def describe(self) -> str:
        """Return the plan as Markdown, for logs and for the person who approves it."""
        return "\n".join([f"**Mend `{self.pipeline}`**", *(f"- {as_markdown(line)}" for line in self.lines())])
