"""What a keyed state is: its name, kind and types, and the statistics kept of it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from statelib.errors import InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.key_groups import KeyGroupRange, check_parallelism
from statelib.model.types import VOID, StateType

_TIMERS = "_timer_state/"
EVENT_TIMERS, PROCESSING_TIMERS = f"{_TIMERS}event_", f"{_TIMERS}processing_"
"""What Flink puts in front of a timer service's name: the names of its two states."""

MAX_STATES = 32767
"""State ids are shorts (requirement R31)."""


class StateKind(StrEnum):
    """Flink's kinds of keyed state; the values are the words of a pipeline file. ``TIMERS``: the set of
    timers of one service and time domain, which Flink keeps as a priority queue beside the other kinds."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"


@dataclass(frozen=True)
class FieldMeaning:
    """What a pipeline file says of one field of a value beyond its type; ``field`` '' is the value as a whole.

    ``agg``: the aggregate whose accumulator it holds, '' where a user function computes it; ``of``,
    ``by``: the columns it reads; ``bounds``: of a histogram. ``renamed_from``: names that the field
    had in older snapshots. ``keeps_nulls``: a null is a value of ``first`` or ``last``; ``together``: its
    accumulator holds several columns of one event."""

    field: str
    agg: str = ""
    of: str | None = None
    by: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    renamed_from: tuple[str, ...] = ()
    keeps_nulls: bool = False
    together: bool = False


@dataclass(frozen=True)
class StateDescriptor:
    """One registered state. ``value_type`` is what one entry holds: T of a value or reducing
    state, the accumulator of an aggregating state, the element of a list state, the user value
    of a map state, void for timers. ``user_key_type`` is set for map state only. ``namespace_type``:
    the window that an entry belongs to, void for state that has none. ``meanings``: of the value's
    fields, empty where nothing tells; ``renamed_from``: names that the state had in older snapshots."""

    name: str
    kind: StateKind
    value_type: StateType
    user_key_type: StateType | None = None
    namespace_type: StateType = VOID
    meanings: tuple[FieldMeaning, ...] = ()
    renamed_from: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind is StateKind.MAP) != (self.user_key_type is not None):
            raise InvalidRequestError(
                f"state {self.name!r} of kind {self.kind}: user_key_type belongs to map state, and only to it",
                kind="bad-state-descriptor",
            )
        if (self.kind is StateKind.TIMERS) != self.name.startswith(_TIMERS) or (
            self.kind is StateKind.TIMERS and self.value_type != VOID
        ):
            raise InvalidRequestError(
                f"state {self.name!r} of kind {self.kind}: timers, and only they, have a name that begins with "
                f"{_TIMERS}, and no values",
                kind="bad-state-name",
            )
        if not self.name or self.name == "default":
            raise InvalidRequestError(
                f"state name {self.name!r}: expected a name other than '' and 'default' (RocksDB's own column family)",
                kind="bad-state-name",
            )


def timers_descriptor(prefix: str, service: str, namespace_type: StateType = VOID) -> StateDescriptor:
    """The state of a timer service; ``prefix``: :data:`EVENT_TIMERS` or :data:`PROCESSING_TIMERS`."""
    return StateDescriptor(prefix + service, StateKind.TIMERS, VOID, None, namespace_type)


@dataclass(frozen=True)
class KeyedStateSchema:
    """All that is needed to read or write the keyed state of one operator.

    ``states`` is in registration order, which gives the state ids."""

    key_type: StateType
    max_parallelism: int
    states: tuple[StateDescriptor, ...]

    def __post_init__(self) -> None:
        names = [s.name for s in self.states]
        if len(set(names)) != len(names):
            raise InvalidRequestError(
                f"state names {names}: expected each name once (a state name serves one kind only)",
                kind="duplicate-state",
            )
        check_parallelism(1, self.max_parallelism)
        if len(names) > MAX_STATES:
            raise InvalidRequestError(
                f"{number_of(len(names), 'state')}: expected at most {MAX_STATES}", kind="too-many-states"
            )

    def state(self, name: str) -> StateDescriptor:
        """The state called ``name``; raises InvalidRequestError (``unknown-state``) naming those there are."""
        for descriptor in self.states:
            if descriptor.name == name:
                return descriptor
        known = ", ".join(s.name for s in self.states) or "none"
        raise InvalidRequestError(f"state {name!r} is not registered: known states are {known}", kind="unknown-state")


@dataclass(frozen=True, eq=False)
class StateStatistics:
    """Entries and content digests of one state, one element a key group of ``key_group_range``.

    ``entries`` int64; ``digests`` uint64, the sum modulo 2**64 of each entry's content hash
    (``wire.digest``), hence independent of order, backend and format."""

    key_group_range: KeyGroupRange
    entries: npt.NDArray[np.int64] = field(repr=False)
    digests: npt.NDArray[np.uint64] = field(repr=False)

    @property
    def total_entries(self) -> int:
        return int(self.entries.sum())

    def same_content(self, other: "StateStatistics") -> bool:
        """Whether both describe the same entries of the same key groups."""
        return (
            self.key_group_range == other.key_group_range
            and bool(np.array_equal(self.entries, other.entries))
            and bool(np.array_equal(self.digests, other.digests))
        )


def empty_statistics(key_group_range: KeyGroupRange) -> StateStatistics:
    size = len(key_group_range)
    return StateStatistics(key_group_range, np.zeros(size, np.int64), np.zeros(size, np.uint64))


def merge_statistics(whole: KeyGroupRange, parts: Iterable[StateStatistics]) -> StateStatistics:
    """Statistics of ``whole`` from those of ranges within it; ranges that meet are summed."""
    merged = empty_statistics(whole)
    for part in parts:
        at = part.key_group_range.start - whole.start
        span = slice(at, at + len(part.key_group_range))
        merged.entries[span] += part.entries
        merged.digests[span] += part.digests
    return merged


@dataclass(frozen=True, eq=False)
class KeyCounts:
    """How many distinct keys have state, one element per key group of ``key_group_range``: a key with entries in
    several states, or of several namespaces and user keys, or with timers only, counts once. ``keys``: int64."""

    key_group_range: KeyGroupRange
    keys: npt.NDArray[np.int64] = field(repr=False)

    @property
    def total(self) -> int:
        return int(self.keys.sum())

    def same(self, other: "KeyCounts") -> bool:
        """Whether both count the same key groups and find as many keys in each."""
        return self.key_group_range == other.key_group_range and bool(np.array_equal(self.keys, other.keys))

    def cut(self, key_groups: KeyGroupRange) -> "KeyCounts":
        """The counts of some of the key groups."""
        first = key_groups.start - self.key_group_range.start
        return KeyCounts(key_groups, self.keys[first : first + len(key_groups)])


def no_keys(key_groups: KeyGroupRange) -> KeyCounts:
    return KeyCounts(key_groups, np.zeros(len(key_groups), np.int64))


def merge_key_counts(whole: KeyGroupRange, parts: Iterable[KeyCounts | None]) -> KeyCounts | None:
    """Counts of ``whole`` from those of ranges within it; None where those of one range are not known."""
    merged = no_keys(whole)
    for part in parts:
        if part is None:
            return None
        at = part.key_group_range.start - whole.start
        merged.keys[at : at + len(part.key_group_range)] += part.keys
    return merged
