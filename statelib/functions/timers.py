"""Setting timers, and reading and removing the timers that are due, on columns. ``model.state`` names their states."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import group_rows
from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.model.state import EVENT_TIMERS, PROCESSING_TIMERS
from statelib.serializers.columns.arrow import number_array, numbers
from statelib.serializers.entries.keys import decode_keys, encode_keys
from statelib.serializers.scalars.windows import MOMENT
from statelib.wire.ragged import Ragged, as_arrow, concat

Moments = npt.NDArray[np.int64]
"""Epoch milliseconds."""
DOMAINS = (EVENT_TIMERS, PROCESSING_TIMERS)
"""The prefix of the timer state by the number of the time domain: 0 is event time, 1 is processing time."""


@dataclass(frozen=True, eq=False)
class Timers:
    """Timers of one service, one per row.

    ``domains`` are indexes of :data:`DOMAINS`, and ``groups`` are the key groups of ``keys``. ``namespaces`` is None if
    the timers have no namespace."""

    domains: npt.NDArray[np.int8]
    moments: Moments
    keys: pa.Array
    groups: npt.NDArray[np.int32]
    namespaces: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.moments)

    def take(self, rows: npt.NDArray[np.integer]) -> "Timers":
        """Return the timers in these rows."""
        positions = pa.array(rows)
        namespaces = None if self.namespaces is None else self.namespaces.take(positions)
        return Timers(self.domains[rows], self.moments[rows], self.keys.take(positions), self.groups[rows], namespaces)

    def with_void(self, other: "Timers") -> "Timers":
        """Return the timers of both, each once. Neither may have namespaces."""
        keys = pa.concat_arrays([self.keys, other.keys])
        moments = np.concatenate([self.moments, other.moments])
        domains = np.concatenate([self.domains, other.domains])
        both = Timers(domains, moments, keys, np.concatenate([self.groups, other.groups]))
        if not len(both):
            return both
        return both.take(group_rows([keys, pa.array(moments), pa.array(domains)]).first)


def register(backend: KeyedStateBackend, service: str, timers: Timers) -> None:
    """Set timers of a service. A timer that is already set is unchanged."""
    for domain, prefix in enumerate(DOMAINS):
        timers_of_domain = timers.take(np.flatnonzero(timers.domains == domain))
        if len(timers_of_domain):
            _add(backend, prefix + service, timers_of_domain)


def replace(backend: KeyedStateBackend, service: str, gone: Timers, new: Timers) -> None:
    """Delete event-time timers of a service and set others. All of them are distinct. Timers to delete that are not
    set, and timers to set that already are, are ignored."""
    name = EVENT_TIMERS + service
    keys = concat([_rows(backend, name, timers) for timers in (gone, new)])
    if len(keys):
        _change(backend, name, backend.read(name, keys), np.arange(len(keys)) < len(gone))


def _rows(backend: KeyedStateBackend, name: str, timers: Timers) -> Ragged:
    """Return the serialized keys of timers."""
    schema, moments = backend.schema, number_array(timers.moments, MOMENT)
    return encode_keys(
        schema, schema.state(name), timers.keys, timers.groups, namespaces=timers.namespaces, timestamps=moments
    )


def _add(backend: KeyedStateBackend, name: str, timers: Timers) -> None:
    rows = _rows(backend, name, timers)
    rows = rows.take(group_rows([as_arrow(rows)]).first)
    _change(backend, name, backend.read(name, rows), np.zeros(len(rows), np.bool_))


def take_due(backend: KeyedStateBackend, service: str, domain: int, until_ms: int) -> Timers | None:
    """Remove and return the timers up to and including ``until_ms`` (epoch milliseconds), or None if there are none.

    They are in ascending order of key group, then of time."""
    name = DOMAINS[domain] + service
    keys = backend.timers_until(name, until_ms)
    if not len(keys):
        return None
    remove(backend, name, keys)
    decoded = decode_keys(backend.schema, backend.schema.state(name), keys)
    moments = np.asarray(numbers(decoded.timestamps, "i8"), np.int64)
    domains = np.full(len(moments), domain, np.int8)
    return Timers(domains, moments, decoded.keys, decoded.key_groups, decoded.namespaces)


def remove(backend: KeyedStateBackend, state: str, keys: Ragged) -> None:
    """Delete the entries of serialized keys from a state. Keys must be distinct; keys without an entry are ignored."""
    if len(keys):
        remove_read(backend, state, backend.read(state, keys))


def remove_read(backend: KeyedStateBackend, state: str, before: StateValues) -> None:
    """Delete the entries that were just read from a state."""
    _change(backend, state, before, np.ones(len(before.keys), np.bool_))


def _change(backend: KeyedStateBackend, state: str, before: StateValues, removed: npt.NDArray[np.bool_]) -> None:
    """Delete the entries whose key is true in ``removed``, and add those of the other keys, which are timers."""
    changing = np.flatnonzero(before.present.to_numpy(zero_copy_only=False) == removed)
    if not len(changing):
        return
    if len(changing) < len(removed):
        before, removed = backend.read(state, before.keys.take(changing)), removed[changing]
    backend.write(before, state, pa.nulls(len(changing), before.values.type), pa.array(removed))
