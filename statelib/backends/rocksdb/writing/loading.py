"""Loading a new state. If its entries come in key order and are many, they are written to tables."""

import numpy as np
from rocksdict import Rdict

from statelib.backends.rocksdb.writing import new_tables
from statelib.backends.rocksdb.writing.new_tables import NewTables
from statelib.serializers.entries.rows import StateRows


class Loading:
    """The entries that have been loaded so far. RocksDB does not have them yet."""

    def __init__(self, tables: NewTables) -> None:
        self._tables = tables
        self._few: list[StateRows] = []
        self._count = 0
        self._last = b""

    def add(self, rows: StateRows) -> bool:
        """Add entries in key order. Return False, and add nothing, if the keys are not all greater than those before
        them."""
        if not len(rows):
            return True
        first, last = rows.keys.take(np.array([0, len(rows) - 1])).to_list()
        if self._count and first <= self._last:
            return False
        self._last = last
        self._count += len(rows)
        self._few.append(rows)
        if self._count >= new_tables.FEWEST_ENTRIES:
            for part in self._few:
                self._tables.add(part)
            self._few = []
        return True

    def end(self, family: Rdict) -> list[StateRows]:
        """Hand the entries over to the column family of the state, and return those that are not in tables."""
        self._tables.finish()
        self._tables.take_in(family)
        return self._few
