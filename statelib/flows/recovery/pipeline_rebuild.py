"""The rebuild of one pipeline's rows in the catalog, decided from the snapshots on storage."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from statelib.catalog.commit.rebuilding import Standing
from statelib.coordinator.rebuilding import Proof, Published, head_of, later_head, proofs
from statelib.errors import InvalidRequestError, NotFoundError, UnsupportedError
from statelib.flows.recovery.published import FoundSnapshot, LeftOut, OnStorage
from statelib.flows.recovery.rejudging import Judgement, judge_again
from statelib.flows.wiring import Deployment, now_ms
from statelib.model.checkpoint import SnapshotKind
from statelib.model.failure import CheckpointFailureReason
from statelib.model.ids import CheckpointId, Epoch, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, CommitFacts, Owner, PipelineHead, interval_key
from statelib.savepoints.commit_facts import commit_facts
from statelib.savepoints.verification import verify
from statelib.storage.names import checkpoint_directory

Name = tuple[PipelineName, CheckpointId]


FARTHEST = 1 << 32
"""How far the id of a savepoint may lie beyond those of its pipeline's checkpoints: it decides which id is given out
next, and ids never come back."""


@dataclass(frozen=True)
class Taken:
    """A snapshot that is to be entered, COMPLETED or QUARANTINED, and how it is known that it was registered.
    ``judgement``: what the gate says of it now; None if that was not asked."""

    record: CheckpointRecord
    proof: Proof
    facts: CommitFacts
    judgement: Judgement | None = None

    @property
    def completed(self) -> bool:
        return self.record.state is CheckpointState.COMPLETED


@dataclass(frozen=True)
class PipelinePlan:
    """What becomes of one pipeline. ``known``: snapshots on storage of which the catalog has a row already;
    ``given_up``: the aborted ones that it gets rows of, so that the orphan sweep knows them;
    ``missing_base``: what the oldest ones were built on, and does not lie there any more."""

    pipeline: PipelineName
    taken: tuple[Taken, ...]
    known: tuple[CheckpointId, ...]
    left_out: tuple[LeftOut, ...]
    missing_bases: tuple[CheckpointId, ...]
    standing: Standing
    given_up: tuple[CheckpointRecord, ...] = ()


class PipelineRebuild:
    """Of one pipeline."""

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
        self.found = {f.manifest.checkpoint_id: f for f in stored.found if f.manifest.pipeline == name}
        self.rows = {r.checkpoint_id: r for r in deployment.catalog().list(name)}
        catalog = deployment.catalog()
        self.now, self.next_id = catalog.head(name), catalog.rebuilding.next_id(name)
        own = [f.manifest.checkpoint_id for f in self.found.values() if f.manifest.kind is SnapshotKind.CHECKPOINT]
        self.farthest = max([stored.highest.get(name, 0), self.next_id - 1, *own]) + FARTHEST
        numbers = [self.farthest - FARTHEST, *self.found, *stored.savepoints.get(name, ())]
        self.highest = max(number for number in numbers if number <= self.farthest)

    def plan(self) -> PipelinePlan:
        published = self._published()
        proof = proofs(published)
        taken: dict[CheckpointId, Taken] = {}
        left_out = []
        for number in sorted(self.found):
            if number in self.rows:
                continue
            how = proof.get(number, Proof.UNKNOWN)
            reason = self._refusal(number, how)
            if reason is None:
                taken[number] = self._taken(self.found[number], how, taken)
            else:
                left_out.append(LeftOut(self.found[number].opened.directory, *reason))
        given_up = self._given_up({left.directory: left for left in left_out})
        gone = {record.directory for record in given_up}
        missing = {p.base for p in published if p.base is not None} - {*self.found, *self.rows}
        standing = self._standing(published, {number for number, t in taken.items() if t.completed})
        known = tuple(sorted(set(self.found) & set(self.rows)))
        left = tuple(each for each in left_out if each.directory not in gone)
        bases = tuple(sorted(missing))
        return PipelinePlan(self.name, tuple(taken.values()), known, left, bases, standing, given_up)

    def _given_up(self, left_out: Mapping[str, LeftOut]) -> tuple[CheckpointRecord, ...]:
        """Of what is left out, what is to be given up; also where ``_metadata`` cannot be read, and only the name of
        the directory tells which checkpoint it is."""
        own = f"{self.deployment.root_uri()}/{self.name}"
        records = []
        for number in sorted(self.give_up - set(self.rows)):
            found = self.found.get(number)
            place = found.opened.directory if found else f"{own}/{checkpoint_directory(number)}"
            left = left_out.get(place) or (None if found else self.left_out.get(place))
            if left is None:
                continue
            record = _record(found, None) if found else _unreadable(self.name, number, place)
            reason = f"given up by statelib catalog rebuild: {left.reason}"
            attempt = found.manifest.attempt if found else None
            failure = CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN
            aborted = replace(record, state=CheckpointState.ABORTED, failure=failure, reason=reason, attempt=attempt)
            records.append(aborted)
        return tuple(records)

    def _taken(self, found: FoundSnapshot, proof: Proof, older: Mapping[CheckpointId, Taken]) -> Taken:
        """A savepoint or a fork is a copy of a state that was judged: that it is whole is all that is asked."""
        facts = commit_facts(found.opened, "")
        record = _record(found, facts)
        copied = record.kind is SnapshotKind.SAVEPOINT or (record.base is None and found.manifest.origins)
        if proof is not Proof.UNKNOWN or copied:
            return Taken(record, proof, facts)
        judgement = judge_again(self.deployment, record, found.opened, self._lineage(record, older))
        if judgement.passed:
            return Taken(record, proof, facts, judgement)
        if record.checkpoint_id in self.take:
            note = f"released by statelib catalog rebuild --take; it would be in quarantine for: {judgement.reason}"
            return Taken(replace(record, note=note), proof, facts, judgement)
        aside = replace(record, state=CheckpointState.QUARANTINED, reason=judgement.reason)
        return Taken(aside, proof, facts, judgement)

    def _lineage(self, record: CheckpointRecord, older: Mapping[CheckpointId, Taken]) -> list[CheckpointRecord]:
        """Its base, the base's base and so on, as far as they are known; nothing where the base is not there."""
        known = {**self.rows, **{number: taken.record for number, taken in older.items()}}
        chain: list[CheckpointRecord] = []
        at = record.base
        while at is not None and at in known:
            chain.append(known[at])
            at = known[at].base
        return chain if chain and chain[0].state is CheckpointState.COMPLETED else []

    def _published(self) -> list[Published]:
        """The system's own checkpoints, which alone tell where the pipeline stands."""
        done = CheckpointState.PENDING, CheckpointState.ABORTED
        every = [_published(self.found[number]) for number in sorted(set(self.found) - set(self.rows))] + [
            Published(r.checkpoint_id, r.kind, r.epoch, r.generation, r.base, r.state not in done)
            for r in self.rows.values()
            if r.base is None or r.base < r.checkpoint_id
        ]
        return [p for p in every if p.kind is SnapshotKind.CHECKPOINT]

    def _refusal(self, number: CheckpointId, proof: Proof) -> tuple[str, bool] | None:
        """Why a snapshot is not entered, and whether it is damaged; None if it is."""
        if number in self.leave_out:
            return "left out as you said", False
        if proof is Proof.PASSED_OVER:
            return str(proof), False
        if number > self.farthest:
            return f"its id {number} is far beyond those of the pipeline: expected at most {self.farthest}", True
        whole = proof is Proof.UNKNOWN
        if whole:
            self.reading(f"{self.name}/{number}")
        opened = self.found[number].opened
        try:
            commit_facts(opened, "")
            opened.keyed_operator()
            problems = verify(opened, read_data=whole, scratch=self.deployment.scratch()).problems
        except (InvalidRequestError, NotFoundError, UnsupportedError) as error:
            return error.message, True
        return (problems[0], True) if problems else None

    def _standing(self, published: Sequence[Published], taken: set[CheckpointId]) -> Standing:
        now = self.now
        new = [p for p in published if p.checkpoint_id in self.found and p.checkpoint_id not in self.rows]
        epoch = max([now.epoch, *(p.epoch + 1 for p in new)])
        chosen, generation = now.head, now.generation
        guessed = bool(new) and self.deployment.catalog().rebuilding.is_as_rebuilt(self.name)
        if guessed or any(p.epoch > now.epoch for p in new):
            complete = {n for n, r in self.rows.items() if r.state is CheckpointState.COMPLETED}
            chosen = head_of(published, taken | complete)
            generation = max(p.generation for p in published)
        else:
            chosen = later_head(published, now.head, now.generation, taken)
        parallelism = now.parallelism
        if (chosen, generation) != (now.head, now.generation):
            # What is pending was begun on the old one, and may not become the head.
            epoch = max(epoch, now.epoch + 1)
            parallelism = self._parallelism(chosen, generation)
        head = PipelineHead(self.name, Epoch(epoch), generation, chosen, parallelism, now.cancelled)
        return Standing(head, self.highest + 1, now.epoch, self.next_id)

    def _parallelism(self, head: CheckpointId | None, generation: int) -> int | None:
        """A restore may have set another one than the pipeline file has: then the head has it."""
        if not generation or head not in self.found:
            return None
        files: Mapping[str, int] = {p.name: p.parallelism for p in self.deployment.pipelines()}
        stored = self.found[head].opened.keyed_operator().parallelism
        return None if files.get(self.name) == stored else stored


def _published(found: FoundSnapshot) -> Published:
    m = found.manifest
    return Published(m.checkpoint_id, m.kind, m.epoch, m.generation, m.base)


def _record(found: FoundSnapshot, facts: CommitFacts | None) -> CheckpointRecord:
    m = found.manifest
    interval = m.position.interval if m.kind is SnapshotKind.CHECKPOINT else None
    return CheckpointRecord(
        pipeline=m.pipeline,
        checkpoint_id=m.checkpoint_id,
        kind=m.kind,
        state=CheckpointState.COMPLETED,
        owner=Owner.SYSTEM if m.kind is SnapshotKind.CHECKPOINT else Owner.USER,
        epoch=m.epoch,
        key=interval_key(interval, m.generation) if interval else f"rebuilt:{found.opened.directory}",
        generation=m.generation,
        base=m.base,
        interval=interval,
        strategy=m.strategy,
        parallelism=found.opened.keyed_operator().parallelism,
        directory=found.opened.directory,
        created_at_ms=m.created_at_ms,
        entries=facts.entries if facts else None,
        size_bytes=facts.size_bytes if facts else None,
    )


def _unreadable(name: PipelineName, number: CheckpointId, directory: str) -> CheckpointRecord:
    return CheckpointRecord(
        pipeline=name,
        checkpoint_id=number,
        kind=SnapshotKind.CHECKPOINT,
        state=CheckpointState.ABORTED,
        owner=Owner.SYSTEM,
        epoch=Epoch(0),
        key=f"rebuilt:{directory}",
        generation=0,
        base=None,
        interval=None,
        strategy="",
        parallelism=1,
        directory=directory,
        created_at_ms=now_ms(),
    )
