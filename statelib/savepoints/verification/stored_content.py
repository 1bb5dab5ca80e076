"""The counts and digests of a snapshot's keyed state, from reading all of its entries."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from statelib.backends.keys.distinct import KeyCounter
from statelib.model.handles import StreamStateHandle
from statelib.model.key_groups import KeyGroupRange, all_key_groups
from statelib.model.state import KeyCounts, KeyedStateSchema, StateStatistics
from statelib.restore.check import count_entries
from statelib.restore.entries import windows_of
from statelib.restore.live.deltas import check_deltas
from statelib.savepoints.opened import Checkpoint
from statelib.serializers.entries.keys import shows_where_keys_end


@dataclass(frozen=True)
class StoredContent:
    """The counts and digests of the keyed state of a snapshot. ``statistics``: one element per state, in the order of
    the schema. ``keys``: the number of distinct keys per key group; None if only a user's code can tell keys apart.
    Both are 0 for key groups that were not read."""

    statistics: tuple[StateStatistics, ...]
    keys: KeyCounts | None


def read_content(
    opened: Checkpoint, scratch: str | None = None, key_groups: Sequence[KeyGroupRange] | None = None
) -> StoredContent:
    """Return the counts and digests of the entries of the selected operator, and the number of its distinct keys.

    ``scratch``: the directory for temporary copies. ``key_groups``: as for :meth:`Checkpoint.rows`. Raises what reading
    a snapshot raises, such as CorruptStateError and NotFoundError."""
    schema = opened.schema()
    # Raw timers are read after all handles, and their keys may be in any key group: no range is finished before them.
    windows = (windows_of(handle, opened.window_bytes, key_groups) for handle in opened.handles())
    parts = () if opened.raw_timers else tuple(chain.from_iterable(windows))
    recorded = opened.manifest.keys if opened.manifest else None
    counter = KeyCounter(schema, parts, with_timers=recorded is not None and recorded.with_timers)
    divisible = are_keys_countable(schema)
    rows = opened.rows(scratch, key_groups)
    entries = counter.passing(rows) if divisible else rows
    statistics = count_entries(schema, all_key_groups(schema.max_parallelism), entries)
    return StoredContent(statistics, counter.counts() if divisible else None)


def read_settled(
    opened: Checkpoint,
    scratch: str | None = None,
    key_groups: Sequence[KeyGroupRange] | None = None,
    is_known: Callable[[StreamStateHandle], bool] = lambda _: False,
) -> StoredContent:
    """Return the content without the open deltas, which is what the manifest describes. The partial values of each
    delta are compared with their statistics, unless its streams are known. With open deltas ``keys`` are None.

    ``scratch``, ``key_groups``: as for :func:`read_content`. Raises as :func:`read_content` and CorruptStateError
    (``restore-mismatch``)."""
    sources = opened.managed_sources() if opened.manifest and opened.manifest.deltas else ()
    content = read_content(replace(opened, settled=True), scratch, key_groups)
    for source in sources:
        check_deltas(source, is_known)
    return replace(content, keys=None) if sources else content


def are_keys_countable(schema: KeyedStateSchema) -> bool:
    """Return whether distinct keys can be counted, for which no user's code is needed."""
    return all(shows_where_keys_end(schema, state) for state in schema.states)
