"""State with a time to live: :func:`expire` removes expired values, :class:`TimedStates` stores the time of accesses.

Within a checkpoint the time is constant (it is the end of the data interval). Therefore expired values are removed
once, before the first event is applied; after that no value in the backend has expired.

Source: docs/spec/formats.md#time-to-live; Flink's StateTtlConfig, TtlUtils.expired (a value expires when its age
reaches the duration).
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.backends.keyed import KeyedStateBackend, StateValues
from statelib.backends.operator.side_data import SideData
from statelib.backends.wrappers.expiring import ExpiringCollector, Moments, stored_list
from statelib.backends.wrappers.wrapped import WrappedBackend
from statelib.errors import InvalidRequestError
from statelib.model.key_groups import prefix_width
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.ttl import TtlConfig, TtlUpdate
from statelib.model.types import Ttl
from statelib.serializers.columns.arrow import field_of_elements
from statelib.serializers.columns.cursors import read_unsigned, require
from statelib.serializers.columns.elements import separated
from statelib.serializers.containers.ttl import TIMESTAMP_BYTES
from statelib.serializers.entries.values import value_arrow_type
from statelib.serializers.registry import codec_of
from statelib.wire.ragged import Ragged, as_arrow, concat

_ROWS_AT_ONCE = 1 << 20
"""The number of entries with expired values that are gathered before they are removed."""
_LISTED_AT_ONCE = 1 << 14
"""The number of listed entries whose values are decoded at once."""


def expire(
    backend: KeyedStateBackend,
    ttl: Mapping[str, TtlConfig],
    now_ms: int,
    *,
    before_ms: int | None = None,
    lists: Mapping[str, SideData] | None = None,
) -> int:
    """Remove the values, list elements and map entries that have expired at ``now_ms`` (epoch milliseconds). Return
    the number of backend entries that were removed or became shorter.

    Each state in ``ttl`` is scanned once; only entries with expired values are decoded. ``lists``: the side data, by
    state, with the entries that expire next. If a state has a list that reaches far enough, only entries of the list
    are read: those that have expired since ``before_ms``, the time of the last call. Otherwise a scan makes a new
    one."""
    count = 0
    for name, config in ttl.items():
        descriptor, oldest_ms = backend.schema.state(name), now_ms - config.duration_ms
        side_data = (lists or {}).get(name)
        if side_data is None or before_ms is None:
            count += _expire_by_scan(backend, descriptor, oldest_ms)
            continue
        listed = stored_list(side_data, backend.key_group_range, prefix_width(backend.schema.max_parallelism))
        if listed is not None and listed.duration_ms == config.duration_ms and oldest_ms <= listed.until_ms:
            keys = listed.between(before_ms - config.duration_ms, oldest_ms)
            for start in range(0, len(keys), _LISTED_AT_ONCE):
                some = keys.slice(start, min(start + _LISTED_AT_ONCE, len(keys)))
                count += _expire_listed(backend, descriptor, some, oldest_ms)
            continue
        listing = ExpiringCollector(oldest_ms + config.duration_ms // 2, config.duration_ms)
        count += _expire_by_scan(backend, descriptor, oldest_ms, listing)
        side_data.write(listing.encoded())
    return count


def _expire_listed(backend: KeyedStateBackend, descriptor: StateDescriptor, keys: Ragged, oldest_ms: int) -> int:
    """Remove the expired values of ``keys``, which may have been accessed since they were listed. All their values are
    decoded at once."""
    stored = backend.read(descriptor.name, keys)
    rows = np.flatnonzero(stored.present.to_numpy(zero_copy_only=False))
    values = stored.values.take(pa.array(rows))
    if descriptor.kind is StateKind.LIST:
        elements, numbers = _elements(values)
        times, owners = _times(elements), rows[numbers]
    else:
        times, owners = _times(values), rows
    expired_rows = np.unique(owners[times <= oldest_ms])
    if len(expired_rows):
        _remove_expired(backend, descriptor, keys.take(expired_rows), oldest_ms)
    return len(expired_rows)


def _expire_by_scan(
    backend: KeyedStateBackend, descriptor: StateDescriptor, oldest_ms: int, listing: ExpiringCollector | None = None
) -> int:
    """Remove the expired values of a state, and add the others to ``listing``."""
    total, expired_keys, size = 0, list[Ragged](), 0
    with closing(backend.scan(descriptor.name)) as scan:
        for rows in scan:
            times, owners = _accesses(descriptor, rows.values)
            is_old = times <= oldest_ms
            old = np.unique(owners[is_old])
            if len(old):
                expired_keys.append(rows.keys.take(old))
                size += len(old)
            if listing is not None:
                listing.add(rows.keys, owners[~is_old], times[~is_old])
            if size >= _ROWS_AT_ONCE:
                _remove_expired(backend, descriptor, concat(expired_keys), oldest_ms)
                total, expired_keys, size = total + size, [], 0
    if expired_keys:
        _remove_expired(backend, descriptor, concat(expired_keys), oldest_ms)
    return total + size


def _accesses(descriptor: StateDescriptor, values: Ragged) -> tuple[Moments, npt.NDArray[np.int64]]:
    """Return (time of the last access, row) of each value, and of each element of a list. The times are read from the
    bytes."""
    rows = np.arange(len(values))
    if descriptor.kind is not StateKind.LIST:
        flag = 1 if descriptor.kind is StateKind.MAP else 0
        return _moments(values, values.starts + flag, values.offsets[1:]), rows
    starts, offsets = separated(codec_of(descriptor.value_type), values)
    return _moments(values, starts, starts + TIMESTAMP_BYTES), np.repeat(rows, np.diff(offsets))


def _moments(values: Ragged, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Moments:
    require(starts, TIMESTAMP_BYTES, ends, "time of the last access")
    return read_unsigned(values.data, starts, TIMESTAMP_BYTES, "i8").astype(np.int64)


def _remove_expired(backend: KeyedStateBackend, descriptor: StateDescriptor, keys: Ragged, oldest_ms: int) -> None:
    """Remove the values of ``keys`` that were last accessed at most at ``oldest_ms``: the elements of a list one by
    one, any other value with its entry."""
    before = backend.read(descriptor.name, keys)
    if descriptor.kind is not StateKind.LIST:
        backend.write(before, descriptor.name, before.values, pa.array(np.ones(len(keys), np.bool_)))
        return
    elements, owners = _elements(before.values)
    alive = np.flatnonzero(_times(elements) > oldest_ms)
    # an empty list is not stored: writing one removes the entry
    backend.write(before, descriptor.name, _lists(elements.take(pa.array(alive)), owners[alive], before.values))


class TimedStates(WrappedBackend):
    """The :class:`~statelib.backends.keyed.KeyedStateBackend` that state functions use: it removes the times from the
    values of the states in ``ttl`` when they are read, and adds the time ``now_ms`` when they are written.

    An element that a list already had keeps its time. ``load``, ``scan``, ``count_entries``
    and ``statistics`` are those of ``backend`` and use values with times."""

    def __init__(self, backend: KeyedStateBackend, ttl: Mapping[str, TtlConfig], now_ms: int) -> None:
        super().__init__(backend)
        self._ttl = ttl
        self._now_ms = now_ms
        stored = backend.schema
        self._schema = replace(stored, states=tuple(_plain(descriptor) for descriptor in stored.states))

    @property
    def schema(self) -> KeyedStateSchema:
        return self._schema

    def read(self, state: str, keys: Ragged) -> StateValues:
        stored = self.inner.read(state, keys)
        config = self._ttl.get(state)
        if config is None:
            return stored
        if config.update is TtlUpdate.ON_READ_AND_WRITE:
            stored = self._touched(state, stored)
        return StateValues(keys, stored.present, plain_values(self.inner.schema.state(state), stored.values), stored)

    def write(self, before: StateValues, state: str, values: pa.Array, removed: pa.BooleanArray | None = None) -> None:
        if state not in self._ttl:
            self.inner.write(before, state, values, removed)
            return
        descriptor = self._schema.state(state)
        if descriptor.kind is StateKind.MAP and values.null_count:
            none = pa.array(np.zeros(len(values), np.bool_))
            self._refuse_null_entries(descriptor, values, none if removed is None else removed)
        stored = before.cookie if isinstance(before.cookie, StateValues) else self.inner.read(state, before.keys)
        self.inner.write(stored, state, self._wrapped(state, stored.values, values), removed)

    def _refuse_null_entries(self, descriptor: StateDescriptor, values: pa.Array, removed: pa.BooleanArray) -> None:
        """Raise InvalidRequestError (``null-value``) for a null user value: Flink's format cannot store its time."""
        if pc.any(pc.and_not(values.is_null(), removed)).as_py():
            raise InvalidRequestError(
                f"map state {descriptor.name!r} expires: expected no null values", kind="null-value"
            )

    def _touched(self, state: str, stored: StateValues) -> StateValues:
        """Set the time of all present entries to ``now_ms`` and return them as read again."""
        present_rows = np.flatnonzero(stored.present.to_numpy(zero_copy_only=False))
        if not len(present_rows):
            return stored
        present = self.inner.read(state, stored.keys.take(present_rows))
        plain = plain_values(self.inner.schema.state(state), present.values)
        no_values = pa.nulls(len(plain), present.values.type)
        self.inner.write(present, state, self._wrapped(state, no_values, plain))
        return self.inner.read(state, stored.keys)

    def _wrapped(self, state: str, old: pa.Array, new: pa.Array) -> pa.Array:
        """Return the values ``new`` with times. ``old``: the stored values of the same keys, with times."""
        descriptor = self.inner.schema.state(state)
        type_ = value_arrow_type(descriptor)
        if descriptor.kind is not StateKind.LIST:
            times = pa.array(np.full(len(new), self._now_ms, np.int64))
            return pa.StructArray.from_arrays([times, new], fields=list(type_), mask=new.is_null())
        elements, owners = _elements(new)
        old_elements, old_owners = _elements(old)
        codec = codec_of(self._schema.state(state).value_type)
        encoded = [codec.encode(old_elements.field(1)), codec.encode(elements)]
        times = np.full(len(elements), self._now_ms, np.int64)
        old_rows, new_rows = _matches(concat(encoded), np.concatenate([old_owners, owners]), len(old_elements))
        times[new_rows] = _times(old_elements)[old_rows]
        timed = pa.StructArray.from_arrays([pa.array(times), elements], fields=list(type_.value_type))
        return _lists(timed, owners, new)


def plain_values(descriptor: StateDescriptor, values: pa.Array) -> pa.Array:
    """Return a stored column without its times. A column of a state without a time to live is returned unchanged."""
    if not isinstance(descriptor.value_type, Ttl):
        return values
    if descriptor.kind is not StateKind.LIST:
        return values.flatten()[1]
    return field_of_elements(values, 1)


def _plain(descriptor: StateDescriptor) -> StateDescriptor:
    type_ = descriptor.value_type
    return replace(descriptor, value_type=type_.value) if isinstance(type_, Ttl) else descriptor


def _times(timed: pa.StructArray) -> Moments:
    """Return the times of the last access, in epoch milliseconds."""
    return np.asarray(timed.field(0).to_numpy(zero_copy_only=False), np.int64)


def _elements(lists: pa.ListArray) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return all elements of a column of lists (null lists have none), and the row number of each element's list."""
    owners = np.asarray(pc.list_parent_indices(lists).to_numpy(zero_copy_only=False), np.int64)
    return lists.flatten(), owners


def _lists(elements: pa.Array, owners: npt.NDArray[np.int64], rows: pa.Array) -> pa.Array:
    """Return the column of lists with these elements, the inverse of :func:`_elements`. A row is null if it is null in
    ``rows``."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=len(rows)))])
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), elements, mask=rows.is_null())


def _matches(
    values: Ragged, owners: npt.NDArray[np.int64], first: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return pairs of equal values with the same owner: indices into the first ``first`` values, and indices into the
    rest. Each value is in at most one pair."""
    codes = as_arrow(values).dictionary_encode().indices.to_numpy().astype(np.int64)
    groups = np.unique(np.stack([owners, codes]), axis=1, return_inverse=True)[1].reshape(-1)
    place = np.concatenate([_place_in_group(groups[:first]), _place_in_group(groups[first:])])
    slots = groups * (int(place.max(initial=-1)) + 1) + place
    _, old_rows, new_rows = np.intersect1d(slots[:first], slots[first:], assume_unique=True, return_indices=True)
    return old_rows, new_rows


def _place_in_group(groups: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return, per element, the number of equal elements before it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=-1))
    sizes = np.diff(np.append(starts, len(ordered)))
    place = np.empty(len(groups), np.int64)
    place[order] = np.arange(len(ordered)) - np.repeat(starts, sizes)
    return place
