"""Partial accumulators in a change log: each is merged with the value that the log has for its entry, or with the
entry below the log.

Source: docs/spec/formats.md#change-log.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.aggregates.declared import folding_of
from statelib.aggregates.folding import Folding
from statelib.errors import CorruptStateError
from statelib.model.state import StateDescriptor
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import decode_values, encode_values
from statelib.wire.ragged import Ragged, concat

Rows = npt.NDArray[np.int64]
PUT, GONE, MERGED = 0, 1, 2
"""The kinds of a step: the entry gets a value, it is removed, or a value is merged into it."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps that a log takes for the entries of one state, in their order. ``entries[i]`` is the number of the
    entry of step i, ``kinds[i]`` one of :data:`PUT`, :data:`GONE` and :data:`MERGED`. ``values`` are empty for
    :data:`GONE`."""

    entries: Rows
    kinds: npt.NDArray[np.int8]
    values: Ragged


def outcome_of(
    descriptor: StateDescriptor, keys: Ragged, steps: Steps, absent: npt.NDArray[np.bool_]
) -> "EntryOutcome":
    """Return the result of all steps per entry. ``keys``: the key of each entry, by its number. ``absent``: which
    entries are known not to be below the log.

    Raise CorruptStateError (``corrupt-changelog``, and what the codecs raise), InvalidRequestError (``sum-overflow``).
    """
    folding = _merging(descriptor)
    rows = np.arange(len(steps.entries))
    last = np.full(len(keys), -1, np.int64)
    whole = steps.kinds != MERGED
    np.maximum.at(last, steps.entries[whole], rows[whole])
    live = (rows >= last[steps.entries]) & (steps.kinds != GONE)
    merges = np.zeros(len(keys), np.bool_)
    merges[steps.entries[live & (steps.kinds == MERGED)]] = True
    below = (last < 0) & ~absent
    put = ~below & (merges | (steps.kinds[last] == PUT))
    plain = np.flatnonzero(put & ~merges)
    merged, values = _merged(folding, descriptor, steps, np.flatnonzero(live & merges[steps.entries]))
    is_put = put[merged]
    return EntryOutcome(
        StateRows(
            concat([keys.take(plain), keys.take(merged[is_put])]),
            concat([steps.values.take(last[plain]), values.take(np.flatnonzero(is_put))]),
        ),
        keys.take(np.flatnonzero(~below & ~put)),
        StateRows(keys.take(merged[~is_put]), values.take(np.flatnonzero(~is_put))),
    )


@dataclass(frozen=True, eq=False)
class EntryOutcome:
    """The entries that a log puts and removes, and the values that it merges into entries below it."""

    put: StateRows
    gone: Ragged
    merged: StateRows


def merged_with(descriptor: StateDescriptor, values: Ragged, more: Ragged) -> Ragged:
    """Return serialized values merged with more, row by row. Raise as :func:`outcome_of`."""
    return encode_values(descriptor, merged_into(descriptor, decode_values(descriptor, values), more))


def merged_into(descriptor: StateDescriptor, values: pa.Array, more: Ragged) -> pa.Array:
    """Return values merged with serialized ones, row by row; a null is replaced. Raise as :func:`outcome_of`."""
    return _merging(descriptor).merged_values(values, decode_values(descriptor, more))


def _merging(descriptor: StateDescriptor) -> Folding:
    """Return the computation that merges values of the state. Raise CorruptStateError (``corrupt-changelog``) if its
    values cannot be merged."""
    folding = folding_of(descriptor)
    if folding is None:
        raise CorruptStateError(
            f"state {descriptor.name!r}: its log has partial values, but the state is not described by aggregates",
            kind="corrupt-changelog",
        )
    return folding


def _merged(folding: Folding, descriptor: StateDescriptor, steps: Steps, rows: Rows) -> tuple[Rows, Ragged]:
    """Return (entries in ascending order, the value of each): the values of the steps in ``rows``, merged."""
    values, entries = folding.merged_groups(decode_values(descriptor, steps.values.take(rows)), steps.entries[rows])
    return entries, encode_values(descriptor, values)
