"""Setting timers, and reading and removing the timers that are due, on columns. ``model.state`` names their states.

All timers of a service are read once per interval to find those that are due.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.grouping import group_rows
from statelib.backends.key_order import as_arrow
from statelib.backends.keyed import KeyedStateBackend
from statelib.model.state import EVENT_TIMERS, PROCESSING_TIMERS
from statelib.serializers.columns.arrow import number_array, numbers
from statelib.serializers.entries.keys import DecodedKeys, decode_keys, encode_keys
from statelib.serializers.scalars.windows import MOMENT
from statelib.wire.ragged import Ragged, concat

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


def unregister(backend: KeyedStateBackend, service: str, timers: Timers) -> None:
    """Delete distinct event-time timers of a service. Timers that are not set are ignored."""
    if len(timers):
        remove(backend, EVENT_TIMERS + service, _rows(backend, EVENT_TIMERS + service, timers))


def _rows(backend: KeyedStateBackend, name: str, timers: Timers) -> Ragged:
    """Return the serialized keys of timers."""
    schema, moments = backend.schema, number_array(timers.moments, MOMENT)
    return encode_keys(
        schema, schema.state(name), timers.keys, timers.groups, namespaces=timers.namespaces, timestamps=moments
    )


def _add(backend: KeyedStateBackend, name: str, timers: Timers) -> None:
    rows = _rows(backend, name, timers)
    rows = rows.take(group_rows([as_arrow(rows)]).first)
    before = backend.read(name, rows)
    absent = np.flatnonzero(~before.present.to_numpy(zero_copy_only=False))
    if not len(absent):
        return
    if len(absent) < len(rows):
        before = backend.read(name, rows.take(absent))
    backend.write(before, name, pa.nulls(len(absent)))


def take_due(backend: KeyedStateBackend, service: str, domain: int, until_ms: int) -> Timers | None:
    """Remove and return the timers up to and including ``until_ms`` (epoch milliseconds), or None if there are none.

    They are in ascending order of key group, then of time."""
    name = DOMAINS[domain] + service
    descriptor = backend.schema.state(name)
    due_keys = []
    for rows in backend.scan(name):
        moments = _moments(decode_keys(backend.schema, descriptor, rows.keys))
        due_keys.append(rows.keys.take(np.flatnonzero(moments <= until_ms)))
    if not sum(map(len, due_keys)):
        return None
    keys = concat(due_keys)
    remove(backend, name, keys)
    decoded = decode_keys(backend.schema, descriptor, keys)
    moments = _moments(decoded)
    domains = np.full(len(moments), domain, np.int8)
    return Timers(domains, moments, decoded.keys, decoded.key_groups, decoded.namespaces)


def _moments(timers: DecodedKeys) -> Moments:
    return np.asarray(numbers(timers.timestamps, "i8"), np.int64)


def remove(backend: KeyedStateBackend, state: str, keys: Ragged) -> None:
    """Delete the entries of serialized keys from a state. Keys must be distinct; keys without an entry are ignored."""
    if not len(keys):
        return
    before = backend.read(state, keys)
    present = np.flatnonzero(before.present.to_numpy(zero_copy_only=False))
    if not len(present):
        return
    if len(present) < len(keys):
        before = backend.read(state, keys.take(present))
    no_values = pa.nulls(len(present), before.values.type)
    backend.write(before, state, no_values, pa.array(np.ones(len(present), np.bool_)))
