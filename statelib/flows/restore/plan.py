"""The plan of a restore: what it would do, as data, as JSON and as Markdown."""

import json
from dataclasses import asdict, dataclass

from statelib.model.amounts import amount
from statelib.model.moments import moment_of
from statelib.visible import as_markdown, visible


@dataclass(frozen=True)
class SubtaskRead:
    """The part of a plan that concerns one subtask of the next run: the key groups of each handle that it restores
    from, and how much it reads. ``entries``: None if the manifest does not contain their number."""

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


_SEQUENCES = ("abandoned", "aborts", "states", "non_restored", "lost_corrections")
AFTER_DRAINING = (
    "its event-time timers have fired and its windows are closed; later events of these windows begin them again, empty"
)
"""The effect that a restore of a drained savepoint has on the following intervals."""


@dataclass(frozen=True)
class RestorePlan:
    """The plan of a restore.

    Attributes:
        checkpoint_id: The id of the snapshot; None if ``directory`` is not in the pipeline's rows of the catalog.
        entries: The number of entries, None if it is not known.
        replay_from_ms: The end of the last interval in the restored state.
        replay_until_ms: The start of the last interval that the restore undoes; None if it undoes none.
        abandoned: The checkpoints of the present history that are not part of the new one.
        aborts: The pending checkpoints and savepoints, which the restore aborts.
        states: One line per state of the pipeline: how it is restored.
        non_restored: One line per state of the snapshot that is left out, because the pipeline file allows it.
        estimate_ms: The time that the slowest subtask needs to read its state; None if no restore was measured.
        estimated_from: The checkpoint whose restore was measured for the estimate.
        keys: The number of distinct keys; None if it is not known.
        drained: Whether the snapshot is a drained savepoint, see :data:`AFTER_DRAINING`.
        lost_corrections: The starts of the intervals that the restored state has without the corrections that abandoned
            checkpoints made, see :meth:`mend_again`.
        head: The head of the pipeline that the restore replaces; None if it has none.
        chosen_parallelism: The parallelism that overrides the pipeline file after the restore; None if none was
            chosen, so that nothing about it changes.
        key: The idempotency key, with which the plan is carried out once. Whoever may repeat a plan sets it, else ''.
    """

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
    lost_corrections: tuple[int, ...] = ()
    head: int | None = None
    chosen_parallelism: int | None = None
    key: str = ""

    def to_json(self) -> str:
        """Return the plan as JSON, for :meth:`from_json`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> "RestorePlan":
        """Return the plan that :meth:`to_json` wrote."""
        values = json.loads(text)
        reads = tuple(SubtaskRead(**{**read, "handles": tuple(read["handles"])}) for read in values["reads"])
        sequences = {name: tuple(values[name]) for name in _SEQUENCES}
        return RestorePlan(**{**values, **sequences, "reads": reads})

    def estimate(self) -> str:
        """Return the estimate of the slowest subtask's restore as text for people."""
        if self.estimate_ms is None:
            return "unknown, no restore from storage was measured yet"
        return f"about {self.estimate_ms / 1000:.1f} s, as fast as before checkpoint {self.estimated_from}"

    def mend_again(self) -> tuple[str, ...]:
        """Return the commands that repeat the corrections which the restore undoes and no replay repeats."""
        starts = (moment_of(start_ms).isoformat() for start_ms in self.lost_corrections)
        return tuple(f"statelib mend {self.pipeline} --interval {start}" for start in starts)

    def describe(self) -> str:
        """Return the plan as Markdown, for logs and for the person who approves it. Names that come from a snapshot are
        escaped."""
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
        lines += [f"- **undoes a correction** that no replay repeats: `{command}`" for command in self.mend_again()]
        lines += [f"- {as_markdown(line)}" for line in self.states]
        lines += [f"- **not restored**: {as_markdown(line)}" for line in self.non_restored]
        return "\n".join(lines + [f"- {as_markdown(str(line))}" for line in self.reads])
