"""The commit protocol as a small state machine: coordinators, tasks, a cleaner, a reader, and what they share.

Each step yields every world that it may lead to. A process may also die between any two steps. The model contains
the subjects of the invariants of ARCHITECTURE.md: rows, references, files and ``_metadata``; not bytes or key
groups. ``Mechanisms`` names what the protocol relies on, so that each can be taken away."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from statelib.coordinator.checkpoint_lifecycle import COMMITTED, CheckpointEvent, after, before
from statelib.model.record import CheckpointState

PENDING, COMPLETED = CheckpointState.PENDING, CheckpointState.COMPLETED
ABORTED, DELETING = CheckpointState.ABORTED, CheckpointState.DELETING


@dataclass(frozen=True)
class Mechanisms:
    """The mechanisms that keep checkpoints complete. False removes a mechanism from the model."""

    unique_names: bool = True
    """A physical name contains the attempt that writes it."""
    ids_never_reused: bool = True
    fencing: bool = True
    """A commit checks, inside its transaction, that the row is PENDING and the epoch is the newest."""
    sweep_spares_open_attempts: bool = True
    pins: bool = True
    """A restore pins the files that it reads."""
    reserve_at_begin: bool = True
    """``begin`` inserts references to the files of the base."""
    condemn_first: bool = True
    """gc marks files in the transaction that finds them unreferenced; a marked file cannot be referred to again."""
    reads_back: bool = True
    """After a lost reply the row is read."""
    abort_keeps: bool = True
    """Abort deletes nothing."""


class Object(NamedTuple):
    """A data file on storage; ``content`` is the attempt that wrote it, and the copy of the task."""

    name: tuple[int, int]
    content: tuple[int, int]


class Metadata(NamedTuple):
    """The ``_metadata`` of a checkpoint id: its writer, and the objects that it needs."""

    checkpoint: int
    attempt: int
    needs: frozenset[Object]


class Row(NamedTuple):
    checkpoint: int
    state: CheckpointState
    epoch: int
    attempt: int
    needs: frozenset[Object]


class Coordinator(NamedTuple):
    """A coordinator. ``step``: its next step; ``known``: the objects of the base that it will refer to, later all
    that it needs."""

    step: str = "look"
    rounds: int = 1
    number: int = 0
    epoch: int = 0
    checkpoint: int = 0
    attempt: int = 0
    known: frozenset[Object] = frozenset()


class Cleaner(NamedTuple):
    """The cleaner. ``todo``: the objects that it has decided to delete."""

    step: str = "condemn"
    rounds: int = 1
    todo: frozenset[Object | Metadata] = frozenset()
    ids: frozenset[int] = frozenset()


class Reader(NamedTuple):
    step: str = "pin"
    checkpoint: int = 0
    needs: frozenset[Object] = frozenset()


class World(NamedTuple):
    """Catalog, storage, tasks that still write, and the processes. ``broken``: a violation that no world may have."""

    epoch: int = 0
    next_id: int = 1
    head: int = 0
    rows: tuple[Row, ...] = ()
    condemned: frozenset[tuple[int, int]] = frozenset()
    refs: frozenset[tuple[int, tuple[int, int]]] = frozenset()
    open_attempts: frozenset[int] = frozenset()
    pins: frozenset[int] = frozenset()
    objects: frozenset[Object] = frozenset()
    metadata: frozenset[Metadata] = frozenset()
    late: frozenset[Object] = frozenset()
    coordinators: tuple[Coordinator, ...] = ()
    cleaner: Cleaner | None = None
    reader: Reader | None = None
    broken: str = ""


@dataclass(frozen=True)
class Setting:
    """The participants: rounds of each coordinator, rounds of the cleaner, late copies of tasks."""

    name: str
    coordinators: tuple[int, ...]
    cleaner: int
    reader: bool = False
    late_copies: bool = False
    compaction: bool = False
    """A checkpoint may also refer to none of its base's files."""

    def start(self) -> World:
        coordinators = tuple(Coordinator(rounds=rounds, number=n) for n, rounds in enumerate(self.coordinators))
        cleaner = Cleaner(rounds=self.cleaner) if self.cleaner else None
        return World(coordinators=coordinators, cleaner=cleaner, reader=Reader() if self.reader else None)


class Protocol:
    """The steps of a setting, with these mechanisms."""

    def __init__(self, setting: Setting, mechanisms: Mechanisms) -> None:
        self._setting = setting
        self._has = mechanisms
        self._run: dict[str, Callable[[World, Coordinator], Iterator[tuple[str, World, Coordinator]]]] = {
            "look": self._look,
            "begin": self._begin,
            "upload": self._upload,
            "publish": self._publish,
            "check": self._check,
            "commit": self._commit,
            "settle": self._settle,
            "abort": self._abort,
            "retire": self._retire,
        }

    def steps(self, world: World) -> Iterator[tuple[str, World]]:
        """Yield every world that one step leads to, each with the name of the step."""
        for coordinator in world.coordinators:
            if coordinator.step not in ("dead", "done"):
                who = f"coordinator {coordinator.number}"
                for step, changed, then in self._run[coordinator.step](world, coordinator):
                    yield f"{who}: {step}", _with_coordinator(changed, then)
                yield f"{who}: dies", _with_coordinator(world, coordinator._replace(step="dead"))
        if world.cleaner is not None:
            yield from self._clean(world, world.cleaner)
        if world.reader is not None:
            yield from self._read(world, world.reader)
        for late in world.late:
            written = world._replace(objects=_put(world.objects, late), late=world.late - {late})
            yield f"a late copy of a task writes {late.name}", written

    # -- a coordinator's run -----------------------------------------------------------------

    def _look(self, world: World, me: Coordinator) -> Iterator[tuple[str, World, Coordinator]]:
        """Choose the base. The model allows this at any time before ``begin``, which is more than the catalog
        allows."""
        base = _row(world, world.head)
        base_files = base.needs if base else frozenset()
        yield f"looks at {world.head}", world, me._replace(step="begin", known=base_files)
        if self._setting.compaction and base_files:
            yield "will write all anew", world, me._replace(step="begin", known=frozenset())

    def _begin(self, world: World, me: Coordinator) -> Iterator[tuple[str, World, Coordinator]]:
        """Begin in one transaction: take the epoch, end the pending checkpoints of older epochs, assign an id and
        references to the base."""
        world = _supersede(world._replace(epoch=world.epoch + 1))
        number, recorded, refs = world.next_id, me.known, world.refs
        if not self._has.ids_never_reused:
            number = 1 + max((row.checkpoint for row in world.rows if row.state is not ABORTED), default=0)
            world = world._replace(rows=tuple(row for row in world.rows if row.checkpoint != number))
        if self._has.reserve_at_begin:
            recorded = frozenset(o for o in recorded if o.name not in world.condemned)
            refs |= {(number, o.name) for o in recorded}
        attempt = 10 * (me.number + 1) + me.rounds
        begun = world._replace(
            next_id=max(world.next_id, number) + 1,
            rows=(*world.rows, Row(number, PENDING, world.epoch, attempt, frozenset())),
            refs=refs,
            open_attempts=world.open_attempts | {attempt},
        )
        then = me._replace(step="upload", epoch=world.epoch, checkpoint=number, attempt=attempt, known=recorded)
        yield f"begins {number}", begun, then

    def _upload(self, world: World, me: Coordinator) -> Iterator[tuple[str, World, Coordinator]]:
        """Let a task write; Spark may have started another copy of it, whose result is not used."""
        mine = self._object(me, 0)
        written = world._replace(objects=_put(world.objects, mine))
        if self._setting.late_copies:
            written = written._replace(late=written.late | {self._object(me, 1)})
        yield "uploads", written, me._replace(step="publish", known=me.known | {mine})

    def _object(self, me: Coordinator, copy: int) -> Object:
        name = (me.attempt, copy) if self._has.unique_names else (me.checkpoint, 0)
        return Object(name, (me.attempt, copy))

    def _publish(self, world: World, me: Coordinator) -> Iterator[tuple[str, World, Coordinator]]:
        """Put if absent: if another attempt's ``_metadata`` exists, this attempt ends."""
        mine = Metadata(me.checkpoint, me.attempt, me.known)
        if any(m.checkpoint == me.checkpoint for m in world.metadata):
            if self._has.ids_never_reused:
                yield "finds _metadata", world, me._replace(step="abort")
                return
            others = frozenset(m for m in world.metadata if m.checkpoint != me.checkpoint)
            yield "replaces _metadata", world._replace(metadata=others | {mine}), me._replace(step="check")
            return
        yield "publishes", world._replace(metadata=world.metadata | {mine}), me._replace(step="check")

    def _check(self, world: World, me: Coordinator) -> Iterator[tuple[str, World, Coordinator]]:
        whole = me.known <= world.objects and Metadata(me.checkpoint, me.attempt, me.known) in world.metadata
        yield "checks", world, me._replace(step="commit" if whole else "abort")

    def _commit(self, world: World, me: Coordinator) -> Iterator[tuple[str, World, Coordinator]]:
        """Commit: it is refused, or it happens; the answer may be lost in both cases."""
        row = _row(world, me.checkpoint)
        mine = row is not None and row.state in before(CheckpointEvent.GATE_PASSED) and row.epoch == me.epoch
        allowed = mine and world.epoch == me.epoch if self._has.fencing else row is not None
        unknown = me._replace(step="settle" if self._has.reads_back else "abort")
        if not allowed:
            yield "is refused", world, me._replace(step="abort")
        else:
            committed = self._committed(world, me)
            yield "commits", committed, me._replace(step="retire")
            yield "commits, the reply is lost", committed, unknown
        yield "does not commit, and cannot know", world, unknown

    def _committed(self, world: World, me: Coordinator) -> World:
        row = Row(me.checkpoint, after(CheckpointEvent.GATE_PASSED), me.epoch, me.attempt, me.known)
        broken = world.broken
        if world.epoch != me.epoch:
            broken = f"epoch {me.epoch} committed when {world.epoch} was the newest"
        return _with_row(world, row)._replace(
            head=me.checkpoint,
            refs=world.refs | {(me.checkpoint, o.name) for o in me.known},
            open_attempts=world.open_attempts - {me.attempt},
            broken=broken,
        )

    def _settle(self, world: World, me: Coordinator) -> Iterator[tuple[str, World, Coordinator]]:
        row = _row(world, me.checkpoint)
        committed = row is not None and row.state in COMMITTED and row.attempt == me.attempt
        yield "reads the row back", world, me._replace(step="retire" if committed else "abort")

    def _abort(self, world: World, me: Coordinator) -> Iterator[tuple[str, World, Coordinator]]:
        row = _row(world, me.checkpoint)
        if row is not None and row.state in before(CheckpointEvent.FAILED):
            world = _with_row(world, row._replace(state=after(CheckpointEvent.FAILED)))
            world = world._replace(open_attempts=world.open_attempts - {me.attempt})
        if not self._has.abort_keeps:
            own = frozenset(o for o in world.objects if o.content[0] == me.attempt)
            metadata = frozenset(m for m in world.metadata if m.attempt != me.attempt)
            world = world._replace(objects=world.objects - own, metadata=metadata)
        yield "aborts", world, _next_round(me)

    def _retire(self, world: World, me: Coordinator) -> Iterator[tuple[str, World, Coordinator]]:
        """Retire all checkpoints but the head and those that are being read."""
        for row in world.rows:
            if row.state is COMPLETED and row.checkpoint != world.head and row.checkpoint not in world.pins:
                world = _with_row(world, row._replace(state=after(CheckpointEvent.SUBSUMED)))
        yield "retires", world, _next_round(me)

    # -- the cleaner, which holds no lease ---------------------------------------------------

    def _clean(self, world: World, me: Cleaner) -> Iterator[tuple[str, World]]:
        if me.step == "condemn" and me.rounds:
            yield "cleaner: looks for what nobody needs", self._condemn(world, me)
        elif me.step == "delete":
            yield from self._delete(world, me)
        elif me.step == "sweep":
            yield (
                "cleaner: lists storage",
                world._replace(cleaner=me._replace(step="orphans", todo=frozenset(self._orphans(world)))),
            )
        elif me.step == "orphans":
            for one in me.todo:
                gone = world._replace(objects=world.objects - {one}, metadata=world.metadata - {one})
                yield f"cleaner: deletes the orphan {one}", gone._replace(cleaner=me._replace(todo=me.todo - {one}))
            if not me.todo:
                yield "cleaner: rests", world._replace(cleaner=Cleaner(rounds=me.rounds - 1))
        if me.step != "condemn":
            yield "cleaner: dies, and begins anew", world._replace(cleaner=Cleaner(rounds=me.rounds - 1))

    def _condemn(self, world: World, me: Cleaner) -> World:
        leaving = frozenset(row.checkpoint for row in world.rows if row.state not in (PENDING, COMPLETED))
        refs = frozenset(ref for ref in world.refs if ref[0] not in leaving)
        ids = frozenset(row.checkpoint for row in world.rows if row.state is DELETING)
        held = {name for _, name in refs}
        recorded = {o for row in world.rows if row.state in COMMITTED for o in row.needs}
        todo = frozenset(o for o in recorded if o.name not in held)
        condemned = world.condemned | {o.name for o in todo} if self._has.condemn_first else world.condemned
        cleaner = me._replace(step="delete", todo=todo, ids=ids)
        return world._replace(refs=refs, condemned=condemned, cleaner=cleaner)

    def _delete(self, world: World, me: Cleaner) -> Iterator[tuple[str, World]]:
        """Delete ``_metadata`` first; then data, one object at a time; then the rows."""
        left = frozenset(m for m in world.metadata if m.checkpoint not in me.ids)
        if left != world.metadata:
            yield "cleaner: deletes _metadata", world._replace(metadata=left)
            return
        for one in me.todo & world.objects:
            yield f"cleaner: deletes {one.name}", world._replace(objects=world.objects - {one})
        if not me.todo & world.objects:
            for row in world.rows:
                if row.checkpoint in me.ids and row.state is DELETING:
                    world = _with_row(world, row._replace(state=after(CheckpointEvent.DISCARDED)))
            yield "cleaner: says so", world._replace(cleaner=me._replace(step="sweep", todo=frozenset()))

    def _orphans(self, world: World) -> Iterator[Object | Metadata]:
        """Yield the files that no row refers to and to which no open attempt may refer later."""
        for file in world.metadata:
            row = _row(world, file.checkpoint)
            recorded = row is not None and row.state in (COMPLETED, DELETING) and row.attempt == file.attempt
            if not recorded and file.attempt not in world.open_attempts:
                yield file
        needed = {o.name for row in world.rows if row.state in COMMITTED for o in row.needs}
        for one in world.objects:
            spared = self._has.sweep_spares_open_attempts and one.content[0] in world.open_attempts
            if one.name not in needed and not spared:
                yield one

    # -- a restore that reads ----------------------------------------------------------------

    def _read(self, world: World, me: Reader) -> Iterator[tuple[str, World]]:
        if me.step == "pin" and world.head:
            pins = world.pins | {world.head} if self._has.pins else world.pins
            yield "reader: begins", world._replace(pins=pins, reader=Reader("metadata", world.head))
        elif me.step == "metadata":
            metadata = [m for m in world.metadata if m.checkpoint == me.checkpoint]
            broken = world.broken if metadata else f"a restore of {me.checkpoint} finds no _metadata"
            needs = metadata[0].needs if metadata else frozenset()
            yield "reader: reads _metadata", world._replace(reader=Reader("files", me.checkpoint, needs), broken=broken)
        elif me.step == "files":
            missing = me.needs - world.objects
            broken = f"a restore of {me.checkpoint} misses {sorted(missing)}" if missing else world.broken
            rests = world._replace(pins=world.pins - {me.checkpoint}, reader=Reader("done"), broken=broken)
            yield "reader: reads all files", rests


def _row(world: World, checkpoint: int) -> Row | None:
    return next((row for row in world.rows if row.checkpoint == checkpoint), None)


def _with_row(world: World, row: Row) -> World:
    return world._replace(rows=tuple(row if r.checkpoint == row.checkpoint else r for r in world.rows))


def _with_coordinator(world: World, then: Coordinator) -> World:
    """Return the world with a coordinator replaced. The step at which a dead one ended is forgotten, because it makes
    no difference."""
    then = Coordinator(then.step, 0, then.number) if then.step in ("dead", "done") else then
    return world._replace(coordinators=tuple(then if c.number == then.number else c for c in world.coordinators))


def _next_round(me: Coordinator) -> Coordinator:
    left = me.rounds - 1
    return Coordinator("look" if left else "done", left, me.number)


def _supersede(world: World) -> World:
    """Return the world after the pending checkpoints of older epochs were aborted. Nothing is deleted."""
    for row in world.rows:
        if row.state in before(CheckpointEvent.SUPERSEDED):
            world = _with_row(world, row._replace(state=after(CheckpointEvent.SUPERSEDED)))
            world = world._replace(open_attempts=world.open_attempts - {row.attempt})
    return world


def _put(objects: frozenset[Object], new: Object) -> frozenset[Object]:
    """Write an object. Without unique names a second write replaces the first."""
    return frozenset(o for o in objects if o.name != new.name) | {new}
