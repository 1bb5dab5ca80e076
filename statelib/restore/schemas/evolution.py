"""From the states of a snapshot to those of a backend: matched by name, judged, migrated.

Source: Flink's StateSerializerProvider and TypeSerializerSchemaCompatibility; requirement "schema
evolution" and `--allowNonRestoredState`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from statelib.errors import InvalidRequestError
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.restore.plan import RestoreSource
from statelib.restore.schemas.compatibility import ORDER, Compatibility, compare_states
from statelib.restore.schemas.matching import check_same_keys, describe
from statelib.restore.schemas.migration import migration
from statelib.serializers.rows import StateRows

Migration = Callable[[StateRows], StateRows]


@dataclass(frozen=True)
class Resolution:
    """What becomes of one state. ``state``: its present name; ``stored``: its name in the snapshot,
    None for a new state, which starts empty. ``changes``: in words. Picklable."""

    state: str
    stored: str | None
    compatibility: Compatibility
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        told = "; ".join(self.changes)
        return f"state {self.state!r}: {self.compatibility}{f' ({told})' if told else ''}"


@dataclass(frozen=True)
class Evolution:
    """``resolutions``: of the wanted states, in their order; ``non_restored``: stored states that no wanted
    one comes from. Picklable."""

    wanted: KeyedStateSchema
    found: KeyedStateSchema
    resolutions: tuple[Resolution, ...]
    non_restored: tuple[str, ...]

    def check(self, *, allow_non_restored: bool) -> None:
        """Raise InvalidRequestError: ``state-schema-changed`` naming state, field, expected and found;
        ``non-restored-state`` naming the states that would be dropped."""
        for resolution in self.resolutions:
            if resolution.compatibility is Compatibility.INCOMPATIBLE:
                raise self._incompatible(resolution)
        # Flink registers a service's timers whether it sets any or not: only those with entries would be lost.
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
        expected, found = self.wanted.state(resolution.state), self.found.state(resolution.stored)
        return InvalidRequestError(
            f"state {resolution.state!r}: the pipeline expects {describe(expected)}, the stored state has"
            f" {describe(found)}: {'; '.join(resolution.changes)}",
            kind="state-schema-changed",
            hint="restore with the definition that wrote the state, or give the changed state another name",
        )

    @property
    def rewrites(self) -> bool:
        """Whether stored entries change their bytes or their state's name."""
        return any(
            r.compatibility is Compatibility.AFTER_MIGRATION or r.stored not in (None, r.state)
            for r in self.resolutions
        )

    def targets(self) -> tuple["Target | None", ...]:
        """For each stored state what becomes of its entries; None = they are left out."""
        by_stored = {r.stored: r for r in self.resolutions if r.stored is not None}
        return tuple(self._target(state, by_stored.get(state.name)) for state in self.found.states)

    def _target(self, found: StateDescriptor, resolution: Resolution | None) -> "Target | None":
        if resolution is None:
            return None
        if resolution.compatibility is Compatibility.AS_IS:
            return Target(resolution.state, lambda rows: rows)
        return Target(resolution.state, migration(found, self.wanted.state(resolution.state)))


@dataclass(frozen=True)
class Target:
    """The state that entries go to, and what makes its entries of them."""

    state: str
    migrate: Migration


def evolve(wanted: KeyedStateSchema, found: KeyedStateSchema) -> Evolution:
    """Judge every state; only what concerns all of them raises.

    Raises InvalidRequestError: ``max-parallelism-changed``, ``state-schema-changed`` for another key type."""
    check_same_keys(wanted, found)
    stored = {d.name: d for d in found.states}
    resolutions = tuple(_resolve(d, origin, stored) for d, origin in _origins(wanted, list(stored)))
    restored = {resolution.stored for resolution in resolutions}
    return Evolution(wanted, found, resolutions, tuple(name for name in stored if name not in restored))


def _origins(wanted: KeyedStateSchema, stored: Sequence[str]) -> Iterator[tuple[StateDescriptor, str | None]]:
    """Each wanted state and the stored one that it was: of the same name, or of an earlier one."""
    present = {d.name for d in wanted.states}
    for descriptor in wanted.states:
        former = [name for name in descriptor.renamed_from if name not in present]
        yield descriptor, next((name for name in (descriptor.name, *former) if name in stored), None)


def _resolve(wanted: StateDescriptor, origin: str | None, stored: dict[str, StateDescriptor]) -> Resolution:
    if origin is None:
        return Resolution(wanted.name, None, Compatibility.AS_IS, ("new: starts empty",))
    differences = compare_states(stored[origin], wanted)
    worst = max((d.compatibility for d in differences), key=ORDER.index, default=Compatibility.AS_IS)
    told = [d.text for d in differences if worst is not Compatibility.INCOMPATIBLE or d.compatibility is worst]
    renamed = [f"was called {origin!r}"] if origin != wanted.name else []
    return Resolution(wanted.name, origin, worst, (*renamed, *told))


def evolution_of(schema: KeyedStateSchema, source: RestoreSource) -> Evolution:
    """How the source's states become those of ``schema``; raises as :func:`evolve` and :meth:`Evolution.check`."""
    evolution = evolve(schema, source.schema)
    evolution.check(allow_non_restored=source.allow_non_restored)
    return evolution


def keeps_database(schema: KeyedStateSchema, source: RestoreSource) -> bool:
    """Whether RocksDB's files can be gone on with: no entry's bytes, and no state's name, change."""
    return not evolution_of(schema, source).rewrites
