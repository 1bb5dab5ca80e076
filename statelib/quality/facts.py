"""What the quality gate judges, and what it answers. Plain values: no pandas, no Great Expectations."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from statelib.model.checkpoint import CheckpointManifest, DataInterval
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.model.quality import QualityResult, Severity, verdict
from statelib.model.record import CheckpointRecord
from statelib.model.state import KeyCounts, StateStatistics
from statelib.storage.filesystem.inventory import FileFinding


@dataclass(frozen=True)
class Applied:
    """An interval that a checkpoint of the history applied."""

    checkpoint_id: CheckpointId
    interval: DataInterval


@dataclass(frozen=True)
class SourceHistory:
    """What was applied before. ``position``: the last interval, as the base itself says; None if it does not.
    ``applied``: of the whole history, as the catalog has it. ``gaps``: whether intervals may be left out."""

    position: DataInterval | None
    applied: tuple[Applied, ...]
    gaps: bool


@dataclass(frozen=True)
class RehearsedRange:
    """A subtask's part of the state, restored on trial. ``problem``: '' if that went well."""

    subtask: int
    key_groups: str
    entries: int
    problem: str


@dataclass(frozen=True)
class Trend:
    """A number, and how it went on until now: ``before``, the oldest first. ``measure``: ``entries`` or
    ``size_bytes``; ``subject``: the state. ``most``: how far from what was expected it may be, as a share."""

    measure: str
    subject: str
    before: tuple[int, ...]
    found: int
    most: float
    severity: Severity


@dataclass(frozen=True, eq=False)
class Comparison:
    """Values of a column, of the same key groups now and in the base. ``measure``: ``null_rate`` or
    ``distribution``; ``subject``: ``<state>.<column>``. ``before`` None: the base has no such column."""

    measure: str
    subject: str
    before: pa.ChunkedArray | None
    now: pa.ChunkedArray
    most: float
    severity: Severity
    note: str = ""


@dataclass(frozen=True, eq=False)
class StateSample:
    """Entries of a state as columns by the names that checks use. ``keys``: those columns that say which entry a row
    is. ``entries``: how many there are in all; ``key_groups``: those that were read, None = all; ``note``: what was
    read, '' if everything."""

    state: str
    table: pa.Table
    keys: tuple[str, ...]
    entries: int
    key_groups: tuple[int, ...] | None = None
    note: str = ""

    @property
    def complete(self) -> bool:
        return not self.note


@dataclass(frozen=True)
class UserExpectation:
    """``library_name``: of the class that judges; ``said``: as the pipeline file has it."""

    state: str
    library_name: str
    said: str
    parameters: Mapping[str, object]
    severity: Severity
    needs_all_rows: bool


@dataclass(frozen=True)
class CheckpointFacts:
    """A checkpoint as the catalog asked for it, as it says it is, and as storage has it.

    ``ranges``: key groups of each subtask's handle in ``_metadata``. ``file_findings``: one a
    file of the manifest, data read. ``base_statistics``: of the checkpoint it was built on; None
    if there is none or it has no manifest. ``read_back``: counted again from the stored entries,
    in the schema's state order; None if they could not be read, and then ``unreadable`` may say why. ``read_keys``:
    the distinct keys of these entries.
    ``source``: what was applied before; None where nothing was. What is below is of the pipeline's ``checks``.
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


@dataclass(frozen=True)
class QualityReport:
    """What the gate found. ``report_uri``: the index page of the Data Docs, a ``file:`` URI. ``keys``: the
    distinct keys that were read back; None if the state could not be read."""

    report_uri: str
    results: tuple[QualityResult, ...]
    keys: KeyCounts | None = None

    @property
    def verdict(self) -> Severity | None:
        """The gravest severity of what did not hold; None if all did."""
        return verdict(self.results)

    @property
    def passed(self) -> bool:
        """Whether the checkpoint may be registered: warnings do not stop it."""
        return self.verdict in (None, Severity.WARN)

    @property
    def failures(self) -> tuple[str, ...]:
        """What stops it, in sentences that name the file, the state and key groups, or the counter."""
        return tuple(s for r in self.results if not r.passed and r.severity is not Severity.WARN for s in r.sentences)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(s for r in self.results if not r.passed and r.severity is Severity.WARN for s in r.sentences)
