"""The rebuild of one pipeline's rows in the catalog, decided from the snapshots on storage."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from statelib.catalog.commit.rebuilding import RebuiltPipeline
from statelib.coordinator.rebuilding import GIVEN_UP, Proof, Published, head_of, later_head, proofs
from statelib.errors import CorruptStateError, InvalidRequestError, NotFoundError, UnsupportedError
from statelib.flows.recovery.published import LeftOut, OnStorage, StoredSnapshot
from statelib.flows.recovery.rebuilt_records import completed_record, published_of, record_of, unreadable_record
from statelib.flows.recovery.rejudging import Judgement, judge_again
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, Epoch, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, CommitFacts, PipelineHead
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.verification.snapshots import verify
from statelib.storage.names import checkpoint_directory

Name = tuple[PipelineName, CheckpointId]
"""The name of a checkpoint: its pipeline and its id."""


FARTHEST = 1 << 32
"""The maximum distance of a savepoint's id from the highest id of its pipeline's checkpoints. The highest id decides
which id is allocated next, and ids are never reused."""


@dataclass(frozen=True)
class EnteredSnapshot:
    """A snapshot that the rebuild registers, as COMPLETED or QUARANTINED. ``proof``: the evidence that it was
    registered before. ``judgement``: the gate's present judgement; None if the evidence made it unnecessary.
    ``replaces``: the state of the row that the catalog has of it; None if it has none."""

    record: CheckpointRecord
    proof: Proof
    facts: CommitFacts
    judgement: Judgement | None = None
    replaces: CheckpointState | None = None

    @property
    def completed(self) -> bool:
        """Whether it is registered as COMPLETED."""
        return self.record.state is CheckpointState.COMPLETED


@dataclass(frozen=True)
class PipelinePlan:
    """The plan of the rebuild of one pipeline.

    Attributes:
        entered: The snapshots that are registered.
        registered: The snapshots on storage that the catalog has a row of already.
        left_out: The directories whose snapshots are not registered.
        missing_bases: The bases of the oldest snapshots that are no longer on storage.
        rebuilt: The pipeline's new head, epoch and next id.
        given_up: The snapshots that get a row as ABORTED, so that the orphan sweep can delete their files.
    """

    pipeline: PipelineName
    entered: tuple[EnteredSnapshot, ...]
    registered: tuple[CheckpointId, ...]
    left_out: tuple[LeftOut, ...]
    missing_bases: tuple[CheckpointId, ...]
    rebuilt: RebuiltPipeline
    given_up: tuple[CheckpointRecord, ...] = ()


class PipelineRebuild:
    """The rebuild of one pipeline. :meth:`plan` decides, nothing is changed."""

    def __init__(
        self,
        deployment: Deployment,
        name: PipelineName,
        stored: OnStorage,
        reading: Callable[[str], None],
        *,
        leave_out: Collection[Name],
        take: Collection[Name],
        give_up: Collection[Name],
    ) -> None:
        self.deployment, self.name, self.reading = deployment, name, reading
        self.leave_out = {number for pipeline, number in leave_out if pipeline == name}
        self.take = {number for pipeline, number in take if pipeline == name}
        self.give_up = {number for pipeline, number in give_up if pipeline == name}
        self.left_out = {left.directory: left for left in stored.left_out}
        self.snapshots = {s.manifest.checkpoint_id: s for s in stored.snapshots if s.manifest.pipeline == name}
        self.rows = {r.checkpoint_id: r for r in deployment.catalog().list(name)}
        self.outdated = self._take_outdated_rows()
        catalog = deployment.catalog()
        self.head, self.next_id = catalog.head(name), catalog.rebuilding.next_id(name)
        own = [s.manifest.checkpoint_id for s in self.snapshots.values() if s.manifest.kind is SnapshotKind.CHECKPOINT]
        self.farthest = max([stored.highest.get(name, 0), self.next_id - 1, *own]) + FARTHEST
        numbers = [self.farthest - FARTHEST, *self.snapshots, *stored.savepoints.get(name, ())]
        self.highest = max(number for number in numbers if number <= self.farthest)

    def _take_outdated_rows(self) -> dict[CheckpointId, CheckpointRecord]:
        """Remove from the rows those that the storage shows to be outdated, and return them: a PENDING one whose
        snapshot is published by now, and a QUARANTINED one on which another checkpoint was built, so that it was
        released. Their snapshots are treated like those without a row."""
        pending = {number: row for number, row in self.rows.items() if row.state is CheckpointState.PENDING}
        published = {number: self._published_for(row) for number, row in pending.items()}
        self.snapshots |= {number: snapshot for number, snapshot in published.items() if snapshot}
        bases = {s.manifest.base for s in self.snapshots.values() if s.manifest.kind is SnapshotKind.CHECKPOINT}
        outdated = {
            number: row
            for number, row in self.rows.items()
            if published.get(number)
            or (row.state is CheckpointState.QUARANTINED and number in bases and self._published_for(row))
        }
        self.rows = {number: row for number, row in self.rows.items() if number not in outdated}
        return outdated

    def _published_for(self, row: CheckpointRecord) -> StoredSnapshot | None:
        """Return the snapshot in the directory of a row, wherever it is, if it is that of the row."""
        try:
            opened = self.deployment.open_at(row.directory)
        except (CorruptStateError, NotFoundError, UnsupportedError):
            return None
        if (manifest := opened.manifest) is None:
            return None
        written = manifest.pipeline, manifest.checkpoint_id, manifest.kind, manifest.epoch
        is_of_row = written == (row.pipeline, row.checkpoint_id, row.kind, row.epoch)
        return StoredSnapshot(opened, manifest) if is_of_row else None

    def plan(self) -> PipelinePlan:
        """Return the plan for the pipeline. Snapshots that nothing proves are read whole and judged by the gate."""
        published = self._published()
        proof = proofs(published)
        entered: dict[CheckpointId, EnteredSnapshot] = {}
        left_out = []
        for number in sorted(self.snapshots):
            if number in self.rows:
                continue
            how = proof.get(number, Proof.UNKNOWN)
            reason = self._refusal(number, how)
            if reason is None:
                entered[number] = self._entered(self.snapshots[number], how, entered)
            else:
                left_out.append(LeftOut(self.snapshots[number].opened.directory, *reason))
        given_up = self._given_up({left.directory: left for left in left_out})
        gone = {record.directory for record in given_up}
        missing = {p.base for p in published if p.base is not None} - {*self.snapshots, *self.rows}
        rebuilt = self._rebuilt(published, {number for number, t in entered.items() if t.completed})
        registered = tuple(sorted(set(self.snapshots) & set(self.rows)))
        left = tuple(each for each in left_out if each.directory not in gone)
        bases = tuple(sorted(missing))
        return PipelinePlan(self.name, tuple(entered.values()), registered, left, bases, rebuilt, given_up)

    def _given_up(self, left_out: Mapping[str, LeftOut]) -> tuple[CheckpointRecord, ...]:
        """Return the records, as ABORTED, of the snapshots that are given up: left-out ones, and ones whose
        ``_metadata`` cannot be read, which are identified by the names of their directories."""
        own = f"{self.deployment.root_uri()}/{self.name}"
        records = []
        for number in sorted(self.give_up - set(self.rows) - set(self.outdated)):
            snapshot = self.snapshots.get(number)
            place = snapshot.opened.directory if snapshot else f"{own}/{checkpoint_directory(number)}"
            left = left_out.get(place) or (None if snapshot else self.left_out.get(place))
            if left is None:
                continue
            record = record_of(snapshot, None) if snapshot else unreadable_record(self.name, number, place)
            reason = f"{GIVEN_UP}: {left.reason}"
            failure = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
            records.append(replace(record, state=CheckpointState.ABORTED, failure=failure, reason=reason))
        return tuple(records)

    def _entered(
        self, snapshot: StoredSnapshot, proof: Proof, older: Mapping[CheckpointId, EnteredSnapshot]
    ) -> EnteredSnapshot:
        """Return how the snapshot is registered. A savepoint or the first checkpoint of a fork is a copy of a state
        that was judged before: it needs no judgement."""
        facts = commit_facts(snapshot.opened, "")
        row = self.outdated.get(snapshot.manifest.checkpoint_id)
        record = record_of(snapshot, facts) if row is None else completed_record(row, facts)
        replaces = None if row is None else row.state
        copied = record.kind is SnapshotKind.SAVEPOINT or (record.base is None and snapshot.manifest.origins)
        if proof is not Proof.UNKNOWN or copied:
            return EnteredSnapshot(record, proof, facts, None, replaces)
        judgement = judge_again(self.deployment, record, snapshot.opened, self._lineage(record, older))
        if not judgement.passed and record.checkpoint_id in self.take:
            note = f"released by statelib catalog rebuild --take; it would be in quarantine for: {judgement.reason}"
            record = replace(record, note=note)
        elif not judgement.passed:
            record = replace(record, state=CheckpointState.QUARANTINED, reason=judgement.reason)
        return EnteredSnapshot(record, proof, facts, judgement, replaces)

    def _lineage(
        self, record: CheckpointRecord, older: Mapping[CheckpointId, EnteredSnapshot]
    ) -> list[CheckpointRecord]:
        """Return the records of the base, the base's base and so on, as far as they are known; an empty list if the
        base is missing or not completed."""
        records = {**self.rows, **{number: entered.record for number, entered in older.items()}}
        chain: list[CheckpointRecord] = []
        at = record.base
        while at is not None and at in records:
            chain.append(records[at])
            at = records[at].base
        return chain if chain and chain[0].state is CheckpointState.COMPLETED else []

    def _published(self) -> list[Published]:
        """Return the system's own checkpoints, on storage and in the catalog. Only these decide on the head."""
        done = CheckpointState.PENDING, CheckpointState.ABORTED
        every = [published_of(self.snapshots[number]) for number in sorted(set(self.snapshots) - set(self.rows))] + [
            Published(r.checkpoint_id, r.kind, r.epoch, r.generation, r.base, r.state not in done)
            for r in self.rows.values()
            if r.base is None or r.base < r.checkpoint_id
        ]
        return [p for p in every if p.kind is SnapshotKind.CHECKPOINT]

    def _refusal(self, number: CheckpointId, proof: Proof) -> tuple[str, bool] | None:
        """Return why a snapshot is not registered, and whether it is damaged; None if it is registered."""
        if number in self.leave_out:
            return "left out, as requested", False
        if proof is Proof.PASSED_OVER:
            return str(proof), False
        if number > self.farthest:
            return f"its id {number} is far beyond those of the pipeline: expected at most {self.farthest}", True
        whole = proof is Proof.UNKNOWN
        if whole:
            self.reading(f"{self.name}/{number}")
        opened = self.snapshots[number].opened
        try:
            commit_facts(opened, "")
            opened.keyed_operator()
            problems = verify(opened, read_data=whole, scratch=self.deployment.scratch()).problems
        except (InvalidRequestError, NotFoundError, UnsupportedError) as error:
            return error.message, True
        return (problems[0], True) if problems else None

    def _rebuilt(self, published: Sequence[Published], entered: set[CheckpointId]) -> RebuiltPipeline:
        now = self.head
        new = [p for p in published if p.checkpoint_id in self.snapshots and p.checkpoint_id not in self.rows]
        epoch = max([now.epoch, *(p.epoch + 1 for p in new)])
        chosen, generation = now.head, now.generation
        guessed = bool(new) and self.deployment.catalog().rebuilding.is_as_rebuilt(self.name)
        if guessed or any(p.epoch > now.epoch for p in new):
            complete = {n for n, r in self.rows.items() if r.state is CheckpointState.COMPLETED}
            chosen = head_of(published, entered | complete)
            generation = max(p.generation for p in published)
        else:
            chosen = later_head(published, now.head, now.generation, entered)
        parallelism = now.parallelism
        if (chosen, generation) != (now.head, now.generation):
            # What is pending was begun on the old one, and may not become the head.
            epoch = max(epoch, now.epoch + 1)
            parallelism = self._parallelism(chosen, generation)
        head = PipelineHead(self.name, Epoch(epoch), generation, chosen, parallelism, now.cancelled)
        return RebuiltPipeline(head, self.highest + 1, now.epoch, self.next_id)

    def _parallelism(self, head: CheckpointId | None, generation: int) -> int | None:
        """Return the parallelism of the head if it differs from the pipeline file's, because a restore has set it."""
        if not generation or head not in self.snapshots:
            return None
        files: Mapping[str, int] = {p.name: p.parallelism for p in self.deployment.pipelines()}
        stored = self.snapshots[head].opened.keyed_operator().parallelism
        return None if files.get(self.name) == stored else stored
