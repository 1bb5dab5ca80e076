"""The plan of a restore: what it would do, as data, as JSON and as Markdown."""

import json
from dataclasses import asdict, dataclass

from statelib.model.amounts import amount
from statelib.visible import as_markdown, visible


@dataclass(frozen=True)
class SubtaskRead:
    """What one subtask of the next run restores from: the key groups of each handle, and how much it reads.
    ``entries``: None where nothing tells."""

    subtask: int
    key_groups: str
    handles: tuple[str, ...]
    size_bytes: int
    entries: int | None

    def __str__(self) -> str:
        entries = "unknown entries" if self.entries is None else amount(self.entries, "entry")
        handles = ", ".join(self.handles)
        return (
            f"subtask {self.subtask} (key groups {self.key_groups}) reads"
            f" {amount(len(self.handles), 'handle')}: {handles}; {amount(self.size_bytes, 'byte')}, {entries}"
        )


AFTER_DRAINING = (
    "its event-time timers have fired and its windows are closed; later events of these windows begin them again, empty"
)
"""What a restore of a drained savepoint means for the intervals that follow it."""


@dataclass(frozen=True)
class RestorePlan:
    """A dry run of a restore. ``checkpoint_id`` is None where ``directory`` is not in the catalog.
    ``abandoned``: checkpoints of the present history that will not be part of the new one.
    ``aborts``: checkpoints and savepoints under way, which the restore gives up.
    ``replay_from_ms``: where the restored state ends; ``replay_until_ms``: the start of the last
    interval that is left behind, None if none is. ``states``: what becomes of each state of the pipeline;
    ``non_restored``: state of the snapshot that is left out, because that was allowed.
    ``estimate_ms``: how long the slowest subtask reads if it is as fast as the restore before checkpoint
    ``estimated_from`` was, the newest that was measured; None if none was. ``keys``: distinct ones, None where they are
    not known. ``drained``: see :data:`AFTER_DRAINING`."""

    pipeline: str
    checkpoint_id: int | None
    directory: str
    claim_mode: str
    parallelism: int
    old_parallelism: int
    entries: int | None
    replay_from_ms: int | None
    replay_until_ms: int | None
    abandoned: tuple[int, ...]
    aborts: tuple[int, ...]
    reads: tuple[SubtaskRead, ...]
    states: tuple[str, ...]
    non_restored: tuple[str, ...]
    estimate_ms: int | None = None
    estimated_from: int | None = None
    keys: int | None = None
    drained: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "RestorePlan":
        values = json.loads(text)
        reads = tuple(SubtaskRead(**{**read, "handles": tuple(read["handles"])}) for read in values["reads"])
        sequences = {name: tuple(values[name]) for name in ("abandoned", "aborts", "states", "non_restored")}
        return RestorePlan(**{**values, **sequences, "reads": reads})

    def estimate(self) -> str:
        """How long the slowest subtask restores, for people."""
        if self.estimate_ms is None:
            return "unknown, no restore from storage was measured yet"
        return f"about {self.estimate_ms / 1000:.1f} s, as fast as before checkpoint {self.estimated_from}"

    def describe(self) -> str:
        """The plan as Markdown, for logs and for the person who approves it. Names out of a snapshot are only text."""
        name = f"checkpoint {self.checkpoint_id}" if self.checkpoint_id is not None else self.directory
        keys, entries = ("unknown" if n is None else f"{n:,}" for n in (self.keys, self.entries))
        lines = [
            f"**Restore `{self.pipeline}` to {as_markdown(name)}** ({self.claim_mode})",
            f"- directory: `{visible(self.directory).replace('`', chr(39))}`",
            f"- keys: {keys}",
            f"- entries: {entries}",
            f"- slowest subtask: {self.estimate()}",
            f"- parallelism: {self.old_parallelism} → {self.parallelism}",
            f"- leaves behind: {', '.join(map(str, self.abandoned)) or 'nothing'}",
            f"- aborts, because it is under way: {', '.join(map(str, self.aborts)) or 'nothing'}",
        ]
        if self.drained:
            lines.append(f"- **drained**: {AFTER_DRAINING}")
        lines += [f"- {as_markdown(line)}" for line in self.states]
        lines += [f"- **not restored**: {as_markdown(line)}" for line in self.non_restored]
        return "\n".join(lines + [f"- {as_markdown(str(line))}" for line in self.reads])
