"""The compaction of a RocksDB database, which runs only before a native checkpoint, if it pays, and to its end.

The database of a subtask exists for one run of some seconds. A compaction in the background that is not finished before
the checkpoint is lost and begins again in the next run. Therefore compactions in the background are switched off
(:func:`~statelib.backends.rocksdb.database.family_options`).
"""

import logging
import time
from collections.abc import Mapping

from rocksdict import Rdict

from statelib.backends.rocksdb.database import rocksdb_errors

log = logging.getLogger(__name__)

TWO, FEW, MANY = 2, 5, 16
"""The numbers of flushed, unmerged tables of a state, including the table just flushed, from which they are merged.

``MANY`` applies always, because each lookup searches all of these tables. ``FEW`` applies if merging rewrites little
else: if the flushed tables of all states have at least half the size of the merged ones. ``TWO`` applies if they are
at least as large as the merged ones and LARGE_BYTES: after batches so large, each batch reads the whole state."""
LARGE_BYTES = 1 << 20
"""The size of flushed tables in bytes below which reading them takes less time than merging them."""
_POLL_S, _STALLED_S = 0.005, 5.0
_FLUSHED, _PENDING = "rocksdb.num-files-at-level0", "rocksdb.compaction-pending"
_RUNNING, _FAILED = "rocksdb.num-running-compactions", "rocksdb.background-errors"


def compact_where_it_pays(db: Rdict, families: Mapping[str, Rdict], directory: str) -> None:
    """Flush the memtables, let RocksDB merge the tables of the states that have many, and wait until it is done.

    ``families``: the column families, by state. If a compaction in the background fails, the tables stay as they are;
    a lasting error is raised by the next flush. Raises CorruptStateError (``corrupt-rocksdb``), RetryableError
    (``rocksdb-io``)."""
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
        remaining = {state: _number(family, _FLUSHED) for state, family in due.items()}
        log.info("tables left after %.1f s: %s", time.monotonic() - began, remaining)


def _due(db: Rdict, families: Mapping[str, Rdict]) -> dict[str, Rdict]:
    """Return the states, with their column families, whose tables are to be merged."""
    sizes = [0, 0]
    for file in db.live_files():
        sizes[file["level"] > 0] += file["size"]
    flushed, merged = sizes
    limit = TWO if flushed >= max(merged, LARGE_BYTES) else FEW if 2 * flushed >= merged else MANY
    return {state: family for state, family in families.items() if _number(family, _FLUSHED) >= limit}


def _wait(families: Mapping[str, Rdict]) -> None:
    """Wait until no column family has anything to compact, or until RocksDB reports an error or stops working."""
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
