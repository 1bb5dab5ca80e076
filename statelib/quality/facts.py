"""The input and the result of the quality gate, as plain values without pandas or Great Expectations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.model.checkpoint import CheckpointManifest, DataInterval
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.quality import QualityResult, Severity, verdict
from statelib.model.record import CheckpointRecord
from statelib.model.state import KeyCounts, StateStatistics
from statelib.storage.ports.inventory import FileFinding


@dataclass(frozen=True)
class AppliedInterval:
    """The interval that an earlier checkpoint of the history applied."""

    checkpoint_id: CheckpointId
    interval: DataInterval


@dataclass(frozen=True)
class SourceHistory:
    """The intervals that were applied before this checkpoint. ``position``: the last interval, from the manifest of
    the base; None if it has none. ``applied``: the intervals of the whole history, from the catalog. ``gaps``: whether
    intervals may be left out."""

    position: DataInterval | None
    applied: tuple[AppliedInterval, ...]
    gaps: bool


@dataclass(frozen=True)
class RehearsedRange:
    """The result of a trial restore of one subtask. ``key_groups``: its range as text; ``entries``: number of entries
    that were restored; ``problem``: '' if it succeeded. ``by_job``: a task of the Spark job has restored it."""

    subtask: int
    key_groups: str
    entries: int
    problem: str
    by_job: bool = False


@dataclass(frozen=True)
class Trend:
    """A number of this checkpoint and of the checkpoints before it. ``measure``: ``entries`` or ``size_bytes``;
    ``subject``: the name of the state, or ``checkpoint``. ``before``: the earlier values, oldest first. ``current``:
    the value of this checkpoint. ``most``: the largest allowed distance from the expected value, as a share of it."""

    measure: str
    subject: str
    before: tuple[int, ...]
    current: int
    most: float
    severity: Severity


@dataclass(frozen=True, eq=False)
class Comparison:
    """The values of a column in this checkpoint and in its base, for the same key groups. ``measure``: ``null_rate``
    or ``distribution``; ``subject``: ``<state>.<column>``. ``before``: None if the base has no such column. ``most``:
    the largest allowed difference. ``note``: a remark for the report, '' if none."""

    measure: str
    subject: str
    before: pa.ChunkedArray | None
    now: pa.ChunkedArray
    most: float
    severity: Severity
    note: str = ""


@dataclass(frozen=True, eq=False)
class StateSample:
    """The entries of a state that were read for checks. ``table``: one row per entry, with the column names that checks
    use. ``keys``: the columns that identify an entry. ``entries``: the number of all entries of the state.
    ``key_groups``: the key groups that were read, None = all. ``note``: the part of the entries that was read, '' if
    all."""

    state: str
    table: pa.Table
    keys: tuple[str, ...]
    entries: int
    key_groups: tuple[int, ...] | None = None
    note: str = ""

    @property
    def complete(self) -> bool:
        """Whether the sample holds all entries of the state."""
        return not self.note


@dataclass(frozen=True)
class UserExpectation:
    """An expectation of the pipeline file. ``library_name``: the name of a class of Great Expectations; ``parameters``:
    its arguments; ``text``: the expectation as the pipeline file writes it. ``needs_all_rows``: it cannot be evaluated
    on a sample."""

    state: str
    library_name: str
    text: str
    parameters: Mapping[str, object]
    severity: Severity
    needs_all_rows: bool


@dataclass(frozen=True)
class PartialReading:
    """The part of a snapshot that was read. Earlier checkpoints have proved its other files and key groups.

    ``skipped``: the paths of the files that were not read. ``key_groups``: those whose entries were read. ``written``:
    those of which new files have entries, or whose tables were merged; all others must be as in the base. ``by_job``:
    tasks of the Spark job have read and compared what had to be read."""

    skipped: frozenset[str] = field(repr=False)
    key_groups: frozenset[int] = field(repr=False)
    written: frozenset[int] = field(repr=False)
    by_job: bool = False


@dataclass(frozen=True)
class CheckpointFacts:
    """The facts about one checkpoint from the catalog (``record``), its ``manifest`` and the storage.

    ``manifest``: None if ``_metadata`` has none. ``ranges``: the key groups of each subtask's handle in ``_metadata``.
    ``file_findings``: one per file of the manifest, after reading the file. ``partial``: what was read, None if
    everything was. ``base_statistics``: the statistics of the
    base; None if there is no base or it has no manifest. ``read_back``: the statistics counted from the stored
    entries, in the schema's state order; None if the entries could not be read, and then ``unreadable`` may hold the
    reason. ``read_keys``: the counts of distinct keys of these entries. ``source``: the intervals applied before; None
    if there were none. The fields after it come from the ``checks`` of the pipeline file.
    """

    record: CheckpointRecord
    manifest: CheckpointManifest | None
    ranges: tuple[KeyGroupRange, ...]
    file_findings: tuple[FileFinding, ...]
    base_statistics: tuple[StateStatistics, ...] | None = field(repr=False)
    read_back: tuple[StateStatistics, ...] | None = field(repr=False)
    read_keys: KeyCounts | None = field(default=None, repr=False)
    unreadable: str = ""
    source: SourceHistory | None = None
    trends: tuple[Trend, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    samples: Mapping[str, StateSample] = field(default_factory=dict)
    expectations: tuple[UserExpectation, ...] = ()
    rehearsal: tuple[RehearsedRange, ...] | None = None
    partial: PartialReading | None = None

    def read_key_groups(self, number: int) -> npt.NDArray[np.int64]:
        """Return the key groups, of ``number`` in all, whose entries were read, ascending."""
        return np.arange(number) if self.partial is None else np.array(sorted(self.partial.key_groups), np.int64)


@dataclass(frozen=True)
class QualityReport:
    """The result of the gate. ``report_uri``: the front page of the report, a ``file:`` URI, '' if it could not be
    written. ``keys``: the counts of distinct keys that were read; None if the state could not be read."""

    report_uri: str
    results: tuple[QualityResult, ...]
    keys: KeyCounts | None = None

    @property
    def verdict(self) -> Severity | None:
        """The gravest severity of the checks that failed; None if all passed."""
        return verdict(self.results)

    @property
    def passed(self) -> bool:
        """Whether the checkpoint may be registered. Warnings do not prevent it."""
        return self.verdict in (None, Severity.WARN)

    @property
    def failures(self) -> tuple[str, ...]:
        """The problems that stop the checkpoint, as sentences with the file, the state and key groups, or the
        counter."""
        return tuple(s for r in self.results if not r.passed and r.severity is not Severity.WARN for s in r.sentences)

    @property
    def warnings(self) -> tuple[str, ...]:
        """The problems that do not stop the checkpoint, as sentences."""
        return tuple(s for r in self.results if not r.passed and r.severity is Severity.WARN for s in r.sentences)
