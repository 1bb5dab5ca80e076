"""The description of keyed state: names, kinds and types of states, and the statistics of their entries."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from statelib.errors import InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.key_groups import KeyGroupRange, check_parallelism
from statelib.model.types import VOID, StateType

_TIMERS = "_timer_state/"
EVENT_TIMERS, PROCESSING_TIMERS = f"{_TIMERS}event_", f"{_TIMERS}processing_"
"""The prefixes that Flink puts before the name of a timer service to name its two states."""

MAX_STATES = 32767
"""The largest number of states: a state id is a signed 16-bit integer (requirement R31)."""


class StateKind(StrEnum):
    """Flink's kinds of keyed state; the values are the words of a pipeline file. ``TIMERS``: the set of
    timers of one timer service and time domain. Flink calls it a priority queue state."""

    VALUE = "value"
    LIST = "list"
    MAP = "map"
    REDUCING = "reducing"
    AGGREGATING = "aggregating"
    TIMERS = "timers"


@dataclass(frozen=True)
class FieldMeaning:
    """The declaration of one field of a value in a pipeline file, besides its type. ``field`` '' is the whole value.

    ``agg``: the aggregate whose accumulator the field holds, '' if a user function computes it. ``of``, ``by``: the
    columns that the aggregate reads. ``bounds``: the bounds of a histogram. ``renamed_from``: names that the field
    had in older snapshots. ``keeps_nulls``: ``first`` and ``last`` also take null as a value. ``together``: the
    accumulator holds several columns of one event. ``where``: the boolean column of the events that count, '' if all
    events do. ``hashes``: the kind of values whose hashes a sketch holds, "whole numbers" or "texts or bytes"; '' if it
    holds none, and in the manifests of older versions. ``needs_all_events``: the field must have been there since the
    first event, because a change log may take back any value; as ``renamed_from``, it is not recorded."""

    field: str
    agg: str = ""
    of: str | None = None
    by: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    renamed_from: tuple[str, ...] = ()
    keeps_nulls: bool = False
    together: bool = False
    where: str = ""
    hashes: str = ""
    needs_all_events: bool = False


@dataclass(frozen=True)
class StateDescriptor:
    """The description of one registered keyed state.

    ``value_type``: the value of a value or reducing state, the accumulator of an aggregating state, the element of a
    list state, the user value of a map state, void for timers. ``user_key_type``: the user key of a map state, else
    None. ``namespace_type``: the window type of a windowed state, else void. ``meanings``: the declarations of the
    value's fields, empty if there are none. ``renamed_from``: names that the state had in older snapshots.
    ``windows``: the form and length of the windows, such as "tumbling 1h"; '' if there are none, and in the manifests
    of older versions. ``user_key`` and ``time``: the columns of the events that the user keys and the windows are of,
    '' where there are none, or they are not known.

    Raises InvalidRequestError (``bad-state-descriptor``, ``bad-state-name``)."""

    name: str
    kind: StateKind
    value_type: StateType
    user_key_type: StateType | None = None
    namespace_type: StateType = VOID
    meanings: tuple[FieldMeaning, ...] = ()
    renamed_from: tuple[str, ...] = ()
    windows: str = ""
    user_key: str = ""
    time: str = ""

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

    @property
    def has_sessions(self) -> bool:
        """Whether the state is recorded to have session windows."""
        return self.windows.startswith("session ")

    def as_recorded(self) -> "StateDescriptor":
        """Return the description as the manifest of a snapshot has it: without earlier names and conditions for adding
        fields."""
        meanings = tuple(replace(meaning, renamed_from=(), needs_all_events=False) for meaning in self.meanings)
        return replace(self, meanings=meanings, renamed_from=())


def timers_descriptor(
    prefix: str, service: str, namespace_type: StateType = VOID, renamed_from: Iterable[str] = ()
) -> StateDescriptor:
    """Return the description of a timer service's state. ``prefix``: :data:`EVENT_TIMERS` or
    :data:`PROCESSING_TIMERS`. ``renamed_from``: names that the service had in older snapshots."""
    earlier = tuple(prefix + name for name in renamed_from)
    return StateDescriptor(prefix + service, StateKind.TIMERS, VOID, None, namespace_type, renamed_from=earlier)


@dataclass(frozen=True)
class KeyedStateSchema:
    """The key type, maximum parallelism and states of one operator: all that is needed to read or write its keyed
    state.

    ``states`` are in registration order; the index of a state is its id. Raises InvalidRequestError
    (``duplicate-state``, ``too-many-states``, ``bad-max-parallelism``)."""

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

    @property
    def has_timers(self) -> bool:
        """Whether one of the states is a state of timers."""
        return any(state.kind is StateKind.TIMERS for state in self.states)

    def state(self, name: str) -> StateDescriptor:
        """Return the state with this name. Raises InvalidRequestError (``unknown-state``), which lists the names."""
        for descriptor in self.states:
            if descriptor.name == name:
                return descriptor
        names = ", ".join(s.name for s in self.states) or "none"
        raise InvalidRequestError(f"state {name!r} is not registered: known states are {names}", kind="unknown-state")

    def as_recorded(self) -> "KeyedStateSchema":
        """Return the schema without earlier names, as the manifest of a snapshot has it."""
        return replace(self, states=tuple(state.as_recorded() for state in self.states))


@dataclass(frozen=True, eq=False)
class StateStatistics:
    """The number of entries and the content digest of one state per key group of ``key_group_range``.

    ``entries``: int64. ``digests``: uint64, the sum modulo 2**64 of the content hashes of the entries
    (``wire.digest``); it depends neither on their order nor on backend or format."""

    key_group_range: KeyGroupRange
    entries: npt.NDArray[np.int64] = field(repr=False)
    digests: npt.NDArray[np.uint64] = field(repr=False)

    @property
    def total_entries(self) -> int:
        """Number of entries of all key groups."""
        return int(self.entries.sum())

    def same_content(self, other: "StateStatistics") -> bool:
        """Return whether both describe the same entries of the same key groups."""
        return (
            self.key_group_range == other.key_group_range
            and bool(np.array_equal(self.entries, other.entries))
            and bool(np.array_equal(self.digests, other.digests))
        )


def empty_statistics(key_group_range: KeyGroupRange) -> StateStatistics:
    """Return the statistics of a state without entries."""
    size = len(key_group_range)
    return StateStatistics(key_group_range, np.zeros(size, np.int64), np.zeros(size, np.uint64))


def merge_statistics(whole: KeyGroupRange, parts: Iterable[StateStatistics]) -> StateStatistics:
    """Return the statistics of the range ``whole`` as the sum of ``parts``, whose ranges lie within it."""
    merged = empty_statistics(whole)
    for part in parts:
        at = part.key_group_range.start - whole.start
        span = slice(at, at + len(part.key_group_range))
        merged.entries[span] += part.entries
        merged.digests[span] += part.digests
    return merged


@dataclass(frozen=True, eq=False)
class KeyCounts:
    """The number of distinct keys that have state per key group of ``key_group_range``. ``keys``: int64.

    A key counts once, whether it has entries in several states, namespaces or user keys. A key that has only timers
    does not count (see :func:`key_states`), unless ``with_timers``: earlier versions counted it as well."""

    key_group_range: KeyGroupRange
    keys: npt.NDArray[np.int64] = field(repr=False)
    with_timers: bool = False

    @property
    def total(self) -> int:
        """Number of keys of all key groups."""
        return int(self.keys.sum())

    def same(self, other: "KeyCounts") -> bool:
        """Return whether both have the same key groups and the same number of keys in each."""
        return self.key_group_range == other.key_group_range and bool(np.array_equal(self.keys, other.keys))

    def cut(self, key_groups: KeyGroupRange) -> "KeyCounts":
        """Return the counts of ``key_groups``, a part of this range."""
        first = key_groups.start - self.key_group_range.start
        return replace(self, key_group_range=key_groups, keys=self.keys[first : first + len(key_groups)])


def key_states(schema: KeyedStateSchema, *, with_timers: bool = False) -> frozenset[int]:
    """Return the indexes of the states whose entries decide which keys a schema has: all states but timers, unless
    there are only timers, or ``with_timers``.

    To look for the timers of a key means reading all timers, because they are sorted by time."""
    without = frozenset(i for i, state in enumerate(schema.states) if state.kind is not StateKind.TIMERS)
    return without if without and not with_timers else frozenset(range(len(schema.states)))


def no_keys(key_groups: KeyGroupRange) -> KeyCounts:
    """Return the counts of state without keys: zero per key group."""
    return KeyCounts(key_groups, np.zeros(len(key_groups), np.int64))


def merge_key_counts(whole: KeyGroupRange, parts: Iterable[KeyCounts | None]) -> KeyCounts | None:
    """Return the counts of the range ``whole`` as the sum of ``parts``, whose ranges lie within it; None if one of the
    parts is None (not counted)."""
    merged = no_keys(whole)
    for part in parts:
        if part is None:
            return None
        at = part.key_group_range.start - whole.start
        merged.keys[at : at + len(part.key_group_range)] += part.keys
    return merged
