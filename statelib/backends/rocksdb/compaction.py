"""When RocksDB compacts: before a native checkpoint, where it pays, and then to its end.

A subtask's database lives for one run, of seconds. What RocksDB begins to compact by itself during it is thrown away
unless the checkpoint happens to come later, and begun again in the next run. So nothing is compacted in the background
(:func:`~statelib.backends.rocksdb.database.family_options`).
"""

import logging
import time
from collections.abc import Mapping

from rocksdict import Rdict

from statelib.backends.rocksdb.database import rocksdb_errors

log = logging.getLogger(__name__)

TWO, FEW, MANY = 2, 5, 16
"""Flushed tables of a state that nothing merged yet, the one just flushed with them. ``MANY`` are merged for the sake
of lookups, each of which asks all of them; ``FEW`` only where little else is rewritten with them: what all states
flushed is half of the rest; ``TWO`` where it is as much as the rest, and LARGE_BYTES: of batches so large each reads
the whole state."""
LARGE_BYTES = 1 << 20
"""Less than this is read in less time than it is merged in."""
_POLL_S, _STALLED_S = 0.005, 5.0
_FLUSHED, _PENDING = "rocksdb.num-files-at-level0", "rocksdb.compaction-pending"
_RUNNING, _FAILED = "rocksdb.num-running-compactions", "rocksdb.background-errors"


def compact_where_it_pays(db: Rdict, families: Mapping[str, Rdict], directory: str) -> None:
    """Flush what is in memory; let RocksDB merge the tables of the states that have many, and wait for it.
    ``families``: by state.

    What fails in the background leaves the tables as they are; if it matters, the next flush raises it."""
    with rocksdb_errors(directory, "compacting it"):
        for family in families.values():
            family.flush()
        due = _due(db, families)
        for state, family in due.items():
            log.info("merging the %d tables of state %r", _number(family, _FLUSHED), state)
            family.set_options({"disable_auto_compactions": "false", "level0_file_num_compaction_trigger": str(TWO)})
        began = time.monotonic()
        try:
            _wait(due)
        finally:
            for family in due.values():
                family.set_options({"disable_auto_compactions": "true"})
    if due:
        left = {state: _number(family, _FLUSHED) for state, family in due.items()}
        log.info("tables left after %.1f s: %s", time.monotonic() - began, left)


def _due(db: Rdict, families: Mapping[str, Rdict]) -> dict[str, Rdict]:
    sizes = [0, 0]
    for file in db.live_files():
        sizes[file["level"] > 0] += file["size"]
    flushed, merged = sizes
    limit = TWO if flushed >= max(merged, LARGE_BYTES) else FEW if 2 * flushed >= merged else MANY
    return {state: family for state, family in families.items() if _number(family, _FLUSHED) >= limit}


def _wait(families: Mapping[str, Rdict]) -> None:
    """Until none of them has anything to compact, or RocksDB gives it up."""
    last_seen_at_work = time.monotonic()
    while any(_number(family, _PENDING) or _number(family, _RUNNING) for family in families.values()):
        now = time.monotonic()
        if any(_number(family, _RUNNING) for family in families.values()):
            last_seen_at_work = now
        if any(_number(family, _FAILED) for family in families.values()) or now - last_seen_at_work > _STALLED_S:
            return
        time.sleep(_POLL_S)


def _number(family: Rdict, name: str) -> int:
    return family.property_int_value(name) or 0
