"""What the quality gate judges, and what it answers. Plain values: no pandas, no Great Expectations."""

from dataclasses import dataclass, field

from statelib.model.checkpoint import CheckpointManifest
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord
from statelib.model.state import StateStatistics
from statelib.storage.inventory import FileFinding


@dataclass(frozen=True)
class CheckpointFacts:
    """A checkpoint as the catalog asked for it, as it says it is, and as storage has it.

    ``ranges``: key groups of each subtask's handle in ``_metadata``. ``file_findings``: one a
    file of the manifest, data read. ``base_statistics``: of the checkpoint it was built on; None
    if there is none or it has no manifest. ``read_back``: counted again from the stored entries,
    in the schema's state order; None if they could not be read.
    """

    record: CheckpointRecord
    manifest: CheckpointManifest | None
    ranges: tuple[KeyGroupRange, ...]
    file_findings: tuple[FileFinding, ...]
    base_statistics: tuple[StateStatistics, ...] | None = field(repr=False)
    read_back: tuple[StateStatistics, ...] | None = field(repr=False)


@dataclass(frozen=True)
class Outcome:
    """One expectation: ``checked`` rows were judged, ``failed`` of them did not hold."""

    group: str
    name: str
    passed: bool
    checked: int
    failed: int


@dataclass(frozen=True)
class QualityReport:
    """What the gate found. ``failures`` are sentences naming the file, the state and key groups,
    or the counter. ``report_uri``: the index page of the Data Docs, a ``file:`` URI."""

    passed: bool
    failures: tuple[str, ...]
    report_uri: str
    results: tuple[Outcome, ...]
