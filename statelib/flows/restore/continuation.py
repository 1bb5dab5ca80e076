"""Continue a pipeline, as it is defined now, from an older snapshot: find its operator in the snapshot, and decide for
each state how it is restored."""

from dataclasses import dataclass, replace
from functools import cached_property

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.flows.wiring import Deployment
from statelib.formats.manifest.trailer import OWN_STATE_PREFIX
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.amounts import amount
from statelib.model.checkpoint import CheckpointManifest, OperatorState
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.record import CheckpointState, PipelineHead
from statelib.model.state import KeyCounts, StateKind
from statelib.restore.operator import OperatorEvolution, OperatorRestoreSource, evolve_operator
from statelib.restore.plan import RestoreSource, check_backend
from statelib.restore.schemas.evolution import Evolution, evolve, timers_left
from statelib.restore.schemas.matching import describe
from statelib.savepoints.opened import Checkpoint


@dataclass(frozen=True)
class Continuation:
    """The result of matching a snapshot with a pipeline. ``opened``: the snapshot, with the pipeline's operator
    selected. ``others``: the names of the other operators with state, which nothing restores. ``key``: the columns of
    the pipeline's key."""

    opened: Checkpoint
    backend: str
    evolution: Evolution
    others: tuple[str, ...]
    allow_non_restored: bool
    operator_states: tuple[OperatorStateDescriptor, ...] = ()
    side_data: tuple[str, ...] = ()
    key: tuple[str, ...] = ()

    @cached_property
    def operator_evolution(self) -> OperatorEvolution:
        """The decision per operator state on how it is restored. The headers of the stored streams are read once."""
        reader, subtasks = self.opened.reader(), self.opened.keyed_operator().subtasks
        handles = (state.operator for _, state in subtasks if state.operator is not None)
        streams = (OperatorRestoreSource(handle, reader).open() for handle in handles)
        recorded = self.opened.manifest.operator_states if self.opened.manifest else ()
        return evolve_operator(self.operator_states, streams, recorded)

    def check(self) -> "Continuation":
        """Return this continuation if each state of the snapshot can be restored or may be left out.

        Raises InvalidRequestError: ``backend-changed``, ``state-schema-changed``, ``non-restored-state`` naming states
        or operators, ``timer-state``."""
        check_backend(self.backend, self.opened.handles(), self.opened.directory)
        self._check_key_order()
        self.evolution.check(allow_non_restored=self.allow_non_restored)
        self._check_timers()
        self.operator_evolution.check(allow_non_restored=self.allow_non_restored)
        undeclared = self.undeclared_side_data()
        if undeclared and not self.allow_non_restored:
            raise InvalidRequestError(
                f"{self.opened.directory}: side data {', '.join(map(repr, undeclared))}: the pipeline declares no such"
                " names",
                kind="non-restored-state",
                hint="declare them under side_data; 'allow_non_restored_state: true' in the pipeline file drops them",
            )
        if self.others and not self.allow_non_restored:
            raise InvalidRequestError(
                f"{self.opened.directory}: state of the operators {', '.join(self.others)} belongs to no state of the"
                " pipeline",
                kind="non-restored-state",
                hint="'allow_non_restored_state: true' in the pipeline file leaves it out",
            )
        return self

    def _check_timers(self) -> None:
        """Raise InvalidRequestError (``timer-state``) if timers would be left out. Only the job that reads the stored
        timers notices those of a snapshot without a manifest, which Flink wrote."""
        counted = self.opened.manifest.entries_by_state() if self.opened.manifest else ()
        for name, entries in () if self.allow_non_restored else counted:
            is_left = entries and name in self.evolution.non_restored
            if is_left and self.evolution.found.state(name).kind is StateKind.TIMERS:
                raise timers_left(name, entries)

    def _check_key_order(self) -> None:
        """Raise InvalidRequestError (``state-schema-changed``) if a column of the key has another place, in the key or
        as the user key of a map."""
        manifest = self.opened.manifest
        if manifest is None:
            return
        stored = manifest.key
        if manifest.has_reordered_key(self.key):
            raise InvalidRequestError(
                f"{self.opened.directory}: the key: expected the columns {', '.join(self.key)}, the stored state has "
                f"{', '.join(stored)}: the values of one column would be taken for those of another",
                kind="state-schema-changed",
                hint=f"write key: [{', '.join(stored)}]; the order of the columns is fixed for the life of a state",
            )
        user_keys = [state.user_key for state in self.evolution.wanted.states]
        # Earlier versions did not record the name of a single key column. It may have been a user key, too.
        left, joined = {*stored} - {*self.key}, {*self.key}.difference(stored or user_keys)
        into = next((name for name in user_keys if name in left), "")
        out_of = next((state.user_key for state in manifest.schema.states if state.user_key in joined), "")
        if into or out_of:
            change = f"{into} was in it and is a user key now" if into else f"{out_of} was a user key and is in it now"
            raise InvalidRequestError(
                f"{self.opened.directory}: the key: the column {change}: the values of one column would be taken for"
                " those of another",
                kind="state-schema-changed",
                hint="write the key and the user keys as they were; their columns do not change places in the life of a"
                " state",
            )

    def sources(self) -> tuple[RestoreSource, ...]:
        """Return the restore sources of the snapshot, as :meth:`Checkpoint.sources`."""
        return tuple(replace(s, allow_non_restored=self.allow_non_restored) for s in self.opened.sources())

    def undeclared_side_data(self) -> tuple[str, ...]:
        """Return the names of stored side data of user code that the pipeline does not declare."""
        stored = self.opened.manifest.side_data if self.opened.manifest else ()
        names = {part.name for part in stored if not part.name.startswith(OWN_STATE_PREFIX)}
        return tuple(sorted(names - set(self.side_data)))

    def keys(self, counted: KeyCounts | None) -> KeyCounts | None:
        """Return the number of keys that are restored: from the manifest, else ``counted``. None if neither is known,
        if states with entries are left out, because their keys may be in no other state, or if keys that have only
        timers were counted, as earlier versions did."""
        manifest = self.opened.manifest
        if manifest is None or self._leaves_entries_out(manifest):
            return None
        keys = manifest.keys or counted
        return None if keys is None or (keys.with_timers and manifest.schema.has_timers) else keys

    def keys_below_deltas(self, counted: KeyCounts | None) -> KeyCounts | None:
        """Return the number of keys that are restored before open deltas are merged, else as :meth:`keys`."""
        manifest = self.opened.manifest
        if manifest is None or not manifest.deltas:
            return self.keys(counted)
        return None if self._leaves_entries_out(manifest) else manifest.keys_below_deltas

    def _leaves_entries_out(self, manifest: CheckpointManifest) -> bool:
        sizes = zip(self.evolution.found.states, manifest.statistics, strict=True)
        return any(s.total_entries for state, s in sizes if state.name in self.evolution.non_restored)

    def renamed_key(self) -> tuple[str, ...]:
        """Return one line per column of the key that has another name than in the snapshot."""
        stored = self.opened.manifest.key if self.opened.manifest else ()
        places = zip(stored, self.key, strict=False)
        return tuple(f"the key: {old} goes on as {new}" for old, new in places if old != new)

    def resolutions(self) -> tuple[str, ...]:
        """Return one line per renamed column of the key, and one per state of the pipeline."""
        states = map(str, self.evolution.resolutions)
        return (*self.renamed_key(), *states, *self.operator_evolution.resolutions())

    def non_restored(self) -> tuple[str, ...]:
        """Return one line per state or operator that is left out, with its entries where they are known."""
        schema, manifest = self.evolution.found, self.opened.manifest
        counted = () if manifest is None else manifest.entries_by_state()
        entries = {name: f", {amount(number, 'entry')}" for name, number in counted}
        states = (f"state {n!r} ({describe(schema.state(n))}){entries.get(n, '')}" for n in self.evolution.non_restored)
        side_data = (f"side data {name!r}" for name in self.undeclared_side_data())
        others = (f"operator {name}" for name in self.others)
        return (*states, *self.operator_evolution.non_restored(), *side_data, *others)


def continuation(pipeline: Pipeline, opened: Checkpoint) -> Continuation:
    """Match the snapshot with the pipeline. Only what concerns all states is checked; :meth:`Continuation.check` checks
    each state.

    Raises InvalidRequestError: ``other-operator`` if none of the snapshot's operators is the pipeline's,
    ``max-parallelism-changed``, ``state-schema-changed`` for another key type."""
    own = _own_operator(pipeline, opened)
    selected = replace(opened, selected=own.operator_id)
    if own.max_parallelism != pipeline.max_parallelism:
        raise InvalidRequestError(
            f"{opened.directory} was written with max_parallelism {own.max_parallelism}, "
            f"pipeline {pipeline.name} has {pipeline.max_parallelism}: key groups cannot be moved between the two",
            kind="max-parallelism-changed",
            hint="set max_parallelism back; it is fixed for the life of a state",
        )
    others = tuple(opened.operator_name(o) for o in opened.operators if o is not own and _has_state(o))
    return Continuation(
        selected,
        pipeline.backend,
        evolve(pipeline.schema(), selected.schema()),
        others,
        pipeline.allow_non_restored_state,
        pipeline.operator_descriptors(),
        pipeline.side_data,
        tuple(pipeline.key),
    )


def continued_head(deployment: Deployment, pipeline: Pipeline, head: PipelineHead) -> Continuation | None:
    """Return the continuation of the pipeline, as it is defined now, from its head. None if there is no head, or if it
    is not COMPLETED: the catalog then refuses to begin a checkpoint, with a hint.

    Raises as :func:`continuation` and :meth:`Continuation.check`."""
    record = None if head.head is None else deployment.catalog().get(head.pipeline, head.head)
    if record is None or record.state is not CheckpointState.COMPLETED:
        return None
    opened = deployment.open(record)
    return continuation(pipeline, opened).check()


def as_own(pipeline: Pipeline, source: Checkpoint) -> Checkpoint:
    """Return the snapshot with the keyed state of its selected operator under the operator id of the pipeline."""
    operator = source.keyed_operator()
    own = replace(operator, operator_id=own_operator_id(pipeline), uid=own_uid(pipeline))
    operators = tuple(own if o is operator else o for o in source.operators)
    return replace(source, selected=own.operator_id, metadata=replace(source.metadata, operators=operators))


def own_operator_id(pipeline: Pipeline) -> bytes:
    """Return the operator id under which the pipeline's state is written: ``uid_hash`` if it is set, else the hash of
    its uid."""
    return bytes.fromhex(pipeline.uid_hash) or operator_id(own_uid(pipeline))


def own_uid(pipeline: Pipeline) -> str:
    """Return the uid of the pipeline's operator; the pipeline's name if the file sets none."""
    return pipeline.uid or pipeline.name


def _own_operator(pipeline: Pipeline, opened: Checkpoint) -> OperatorState:
    former = (operator_id(name) for name in (own_uid(pipeline), *pipeline.renamed_from))
    operators = {operator.operator_id: operator for operator in opened.operators}
    for each in (own_operator_id(pipeline), *former):
        if each in operators:
            return operators[each]
    names = ", ".join(map(opened.operator_name, opened.operators)) or "none"
    raise InvalidRequestError(
        f"{opened.directory}: no operator has the uid {own_uid(pipeline)!r} of pipeline {pipeline.name}; there are"
        f" {names}",
        kind="other-operator",
        hint="set its former name in the pipeline file: 'renamed_from' (a name or uid), or 'uid_hash' (an id)",
    )


def _has_state(operator: OperatorState) -> bool:
    return any(state.keyed or state.operator or state.raw_keyed or state.raw_operator for _, state in operator.subtasks)
