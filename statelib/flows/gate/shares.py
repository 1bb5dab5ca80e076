"""Reading a checkpoint back in shares, one per task of a Spark job, before its metadata is published.

A share has some of the files and handles that the gate would read. It raises an error where the gate's checks would
fail, so that a checkpoint is published only if all of its shares have been read.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from statelib.definition.pipeline import Pipeline
from statelib.errors import CorruptStateError
from statelib.flows.gate.reading import Reading, has_merged, reading_of
from statelib.flows.gate.stored_facts import base_statistics
from statelib.flows.wiring import Deployment
from statelib.model.key_groups import KeyGroupRange
from statelib.model.record import CheckpointRecord
from statelib.model.state import StateStatistics
from statelib.restore.check import check_statistics, cut_statistics
from statelib.restore.live.deltas import check_deltas
from statelib.restore.plan import RestoreSource
from statelib.restore.stored.new_parts import written_key_groups
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.stored_content import are_keys_countable, read_content
from statelib.storage.registry import PLACES

_PROBLEMS = {"missing": "it is missing", "size": "it has another size", "checksum": "it has other bytes"}


@dataclass(frozen=True)
class Shares:
    """The reading of a checkpoint, to be divided among ``number`` tasks. It can be pickled. ``base``: the statistics of
    the base; None if they are not known."""

    opened: Checkpoint
    reading: Reading
    base: tuple[StateStatistics, ...] | None = field(repr=False)
    number: int

    def read(self, share: int, scratch: str) -> None:
        """Read one share. Its handles are those of the subtask before, so that no task reads what it wrote.

        Raises CorruptStateError (``read-back-failed``, and the kinds of the formats)."""
        self._read_files(share)
        settled = replace(self.opened, settled=True)
        sources = zip(settled.managed_sources(), self.opened.managed_sources(), strict=True)
        for index, (source, with_deltas) in enumerate(sources):
            if (index + 1) % self.number == share:
                self._read_handle(settled, source, scratch)
                check_deltas(with_deltas, self.reading.is_known)

    def _read_files(self, share: int) -> None:
        files, kind = list(self.reading.files)[share :: self.number], PLACES.kind(self.opened.directory)
        for finding in kind.verify_files(self.opened.directory, files, True, self.opened.allowed_root):
            if finding.problem:
                raise CorruptStateError(
                    f"{finding.path}: {_PROBLEMS[finding.problem]} when it is read back, right after it was written",
                    kind="read-back-failed",
                    hint="look at the storage; a retry writes new files",
                )

    def _read_handle(self, settled: Checkpoint, source: RestoreSource, scratch: str) -> None:
        own, wanted = source.handle.key_group_range, self.reading.key_groups
        parts = [own] if wanted is None else [own.intersection(part) for part in wanted]
        parts = [part for part in parts if len(part)]
        content = read_content(settled, scratch, parts)
        for part in parts:
            self._check(part, content.statistics)
        if self.reading.reads_a_part(source) and self.base is not None:
            done = written_key_groups(source, self.reading.is_known) | self.reading.merged
            done |= {group for part in parts for group in part}
            for group in own:
                if group not in done:
                    self._check(KeyGroupRange(group, group), self.base)

    def _check(self, part: KeyGroupRange, others: Sequence[StateStatistics]) -> None:
        """Compare the recorded statistics of some key groups with others. Raises CorruptStateError
        (``restore-mismatch``)."""
        manifest = self.opened.manifest
        assert manifest is not None
        expected, actual = (tuple(cut_statistics(s, part) for s in each) for each in (manifest.statistics, others))
        check_statistics(manifest.schema, expected, actual)


def shares_of(
    deployment: Deployment, pipeline: Pipeline, record: CheckpointRecord, opened: Checkpoint
) -> Shares | None:
    """Return the reading of a checkpoint that is not published yet; None if the gate itself shall read it, because it
    is small, or because only the gate can record the counts of its keys."""
    manifest, catalog = opened.manifest, deployment.catalog()
    if manifest is None or (manifest.keys is None and not manifest.deltas and are_keys_countable(manifest.schema)):
        return None
    lineage = catalog.lineage(record.pipeline, record.base) if record.base is not None else []
    base = deployment.open(lineage[0]) if lineage else None
    proved = base if lineage and catalog.gate.has_proved(record.pipeline, lineage[0].checkpoint_id) else None
    reading = reading_of(pipeline, opened, proved, record=record, checkpoints=len(lineage))
    if reading.size_bytes < pipeline.checks.in_job_from_bytes:
        return None
    before = None
    if base is not None and base.manifest is not None and not has_merged(opened, base):
        before = base_statistics(pipeline, base, base.manifest.statistics, manifest)
    return Shares(opened, reading, before, record.parallelism)
