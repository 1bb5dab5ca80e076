"""Schema evolution: matching the states of a snapshot with those of a backend, comparing and migrating them.

Source: docs/spec/formats.md#writing-a-savepoint; StateSerializerProvider, TypeSerializerSchemaCompatibility and
``--allowNonRestoredState`` of Flink.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass

from statelib.errors import InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.session_state import window_set
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.compatibility import ORDER, Compatibility, Difference, ambiguous, compare_states
from statelib.restore.schemas.matching import check_same_keys, describe
from statelib.restore.schemas.migration import migration
from statelib.serializers.entries.rows import StateRows

Migration = Callable[[StateRows], StateRows]


@dataclass(frozen=True)
class Resolution:
    """The result for one wanted state. ``state`` is its present name and ``stored`` its name in the snapshot.

    ``stored`` is None for a new state, which starts empty. ``changes`` are the differences in words. Picklable."""

    state: str
    stored: str | None
    compatibility: Compatibility
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        changes = "; ".join(self.changes)
        return f"state {self.state!r}: {self.compatibility}{f' ({changes})' if changes else ''}"


@dataclass(frozen=True)
class Evolution:
    """The result of matching the states of a snapshot (``found``) with the wanted states of a backend.

    ``resolutions`` are per wanted state, in their order. ``non_restored`` are the names of stored states that no wanted
    state continues. Picklable."""

    wanted: KeyedStateSchema
    found: KeyedStateSchema
    resolutions: tuple[Resolution, ...]
    non_restored: tuple[str, ...]

    def check(self, *, allow_non_restored: bool) -> None:
        """Raise InvalidRequestError unless every stored state can be restored or dropping state is allowed.

        The error is ``state-schema-changed`` with the state, the field, the expected and the stored type, or
        ``non-restored-state`` with the states that would be dropped."""
        for resolution in self.resolutions:
            if resolution.compatibility is Compatibility.INCOMPATIBLE:
                raise self._incompatible(resolution)
        # Flink registers the timers of a service even if none is set, so a timer state without entries is no loss.
        lost = [name for name in self.non_restored if self.found.state(name).kind is not StateKind.TIMERS]
        if lost and not allow_non_restored:
            states = ", ".join(f"{name!r} ({describe(self.found.state(name))})" for name in lost)
            raise InvalidRequestError(
                f"stored state {states}: the pipeline has no such state",
                kind="non-restored-state",
                hint="say 'renamed_from' where it has another name now; 'allow_non_restored_state: true' drops it",
            )

    def _incompatible(self, resolution: Resolution) -> InvalidRequestError:
        assert resolution.stored is not None, "a new state is compatible"
        expected, stored = self.wanted.state(resolution.state), self.found.state(resolution.stored)
        return InvalidRequestError(
            f"state {resolution.state!r}: the pipeline expects {describe(expected)}, the stored state has"
            f" {describe(stored)}: {'; '.join(resolution.changes)}",
            kind="state-schema-changed",
            hint="restore with the definition that wrote the state, or give the changed state another name",
        )

    @property
    def rewrites(self) -> bool:
        """Whether any stored entries change their bytes or the name of their state."""
        return any(
            r.compatibility is Compatibility.AFTER_MIGRATION or r.stored not in (None, r.state)
            for r in self.resolutions
        )

    def targets(self) -> tuple["Target | None", ...]:
        """Return the target of the entries per stored state, or None if its entries are dropped."""
        by_stored = {r.stored: r for r in self.resolutions if r.stored is not None}
        return tuple(self._target(state, by_stored.get(state.name)) for state in self.found.states)

    def _target(self, stored: StateDescriptor, resolution: Resolution | None) -> "Target | None":
        if resolution is None:
            return None
        if resolution.compatibility is Compatibility.AS_IS:
            return Target(resolution.state, lambda rows: rows)
        return Target(resolution.state, migration(stored, self.wanted.state(resolution.state)))


@dataclass(frozen=True)
class Target:
    """The name of the state that receives stored entries, and the function that migrates them."""

    state: str
    migrate: Migration


def evolve(wanted: KeyedStateSchema, stored: KeyedStateSchema) -> Evolution:
    """Return how the stored states become the wanted ones. Incompatible states are reported in the result.

    Raise InvalidRequestError (``max-parallelism-changed``, ``state-schema-changed`` if the key type differs)."""
    check_same_keys(wanted, stored)
    stored_states = {d.name: d for d in stored.states}
    origins = list(_origins(wanted, list(stored_states)))
    dropped = stored_states.keys() - {origin for _, origin in origins}
    resolutions = tuple(_resolve(d, origin, stored_states, dropped) for d, origin in origins)
    restored = {resolution.stored for resolution in resolutions}
    return Evolution(wanted, stored, resolutions, tuple(name for name in stored_states if name not in restored))


def _origins(wanted: KeyedStateSchema, stored: Sequence[str]) -> Iterator[tuple[StateDescriptor, str | None]]:
    """Yield each wanted state and the name of the stored state that it continues, by its present or an earlier name."""
    present = {d.name for d in wanted.states}
    for descriptor in wanted.states:
        former = [name for name in descriptor.renamed_from if name not in present]
        yield descriptor, next((name for name in (descriptor.name, *former) if name in stored), None)


def _resolve(
    wanted: StateDescriptor, origin: str | None, stored: dict[str, StateDescriptor], dropped: Set[str]
) -> Resolution:
    if origin is None:
        return Resolution(wanted.name, None, Compatibility.AS_IS, ("new: starts empty",))
    differences = compare_states(stored[origin], wanted)
    others = [name for name in wanted.renamed_from if name in dropped]
    if others and wanted.kind is not StateKind.TIMERS:  # timers are lost only if some are left
        text = ambiguous("state", wanted.name, origin, others[0])
        differences += (Difference(Compatibility.INCOMPATIBLE, text),)
    if wanted.has_sessions and not stored[origin].windows and window_set(origin) not in stored:
        text = "expected session windows, found windows of a fixed size"
        differences += (Difference(Compatibility.INCOMPATIBLE, text),)
    worst = max((d.compatibility for d in differences), key=ORDER.index, default=Compatibility.AS_IS)
    texts = [d.text for d in differences if worst is not Compatibility.INCOMPATIBLE or d.compatibility is worst]
    renamed = [f"was called {origin!r}"] if origin != wanted.name else []
    return Resolution(wanted.name, origin, worst, (*renamed, *texts))


def evolution_of(schema: KeyedStateSchema, source: RestoreSource) -> Evolution:
    """Return how the source's states become those of ``schema``. Raise what :func:`evolve` and :meth:`Evolution.check`
    raise."""
    evolution = evolve(schema, source.schema)
    evolution.check(allow_non_restored=source.allow_non_restored)
    return evolution


def keeps_database(schema: KeyedStateSchema, source: RestoreSource) -> bool:
    """Return whether RocksDB's files can be used further, because no entry's bytes and no state's name change."""
    return not evolution_of(schema, source).rewrites


def timers_left(state: str, timers: int) -> InvalidRequestError:
    """Return the error for stored timers that no state of the pipeline continues."""
    return InvalidRequestError(
        f"the stored state has {number_of(timers, 'timer')} in {state!r}, the pipeline has no state with such timers",
        kind="timer-state",
        hint="let the timers fire, or delete them, in the job that set them; or allow_non_restored_state: true",
    )
