"""A snapshot's keyed state read back whole, in numbers: entries, digests and distinct keys."""

from dataclasses import dataclass
from itertools import chain

from statelib.backends.distinct_keys import KeyCounter
from statelib.model.key_groups import all_key_groups
from statelib.model.state import KeyCounts, StateStatistics
from statelib.restore.check import count_entries
from statelib.restore.entries import windows_of
from statelib.savepoints.opened import Checkpoint


@dataclass(frozen=True)
class StoredContent:
    """Everything that was read back of a snapshot, in numbers. ``statistics``: in the schema's state order."""

    statistics: tuple[StateStatistics, ...]
    keys: KeyCounts


def read_content(opened: Checkpoint, scratch: str | None = None) -> StoredContent:
    """Count and digest what is really stored, and count its distinct keys."""
    schema = opened.schema()
    # Raw timers come behind all handles: their keys may be those of any.
    windows = (windows_of(handle, opened.window_bytes) for handle in opened.handles())
    parts = () if opened.raw_timers else tuple(chain.from_iterable(windows))
    counter = KeyCounter(schema, parts)
    entries = counter.passing(opened.rows(scratch))
    statistics = count_entries(schema, all_key_groups(schema.max_parallelism), entries)
    return StoredContent(statistics, counter.counts())
