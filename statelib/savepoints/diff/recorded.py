"""The entries of a state that a run recorded as changed, as one side of the comparison with the run's base."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.keys.lookup import find_rows
from statelib.backends.wrappers.changed_entries import DELETED
from statelib.model.checkpoint import SideDataRecord
from statelib.model.key_groups import prefix_width
from statelib.model.types import Ttl
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.recorded_changes import read_changes, records_of_changes
from statelib.serializers.entries.rows import NO_ROWS, StateRows, key_groups_of
from statelib.serializers.entries.values import encode_values
from statelib.wire.ragged import as_ragged, concat

Mask = npt.NDArray[np.bool_]


class RecordedSide:
    """The changed entries of one state, read one window of key groups at a time."""

    def __init__(self, opened: Checkpoint, state: str, records: list[SideDataRecord]) -> None:
        self._opened = opened
        self._state = state
        self._records = records

    @classmethod
    def of(cls, before: Checkpoint, after: Checkpoint, state: str) -> "RecordedSide | None":
        """Return the entries of a state that the run of ``after`` recorded, if ``before`` is its base; None if it did
        not record them.

        A state with a time to live has none: writes that change only the time of the last access are not recorded."""
        old, new = before.manifest, after.manifest
        if old is None or new is None or (old.pipeline, old.checkpoint_id) != (new.pipeline, new.base):
            return None
        names = {descriptor.name for descriptor in old.schema.states} & {each.name for each in new.schema.states}
        if state not in names or isinstance(new.schema.state(state).value_type, Ttl):
            return None
        records = records_of_changes(after, state)
        return None if records is None else cls(after, state, records)

    def both(self, before: StateRows, window: Mask) -> tuple[StateRows, StateRows]:
        """Return the changed entries of the key groups in ``window``, before and after the run. ``before``: all entries
        that these key groups had before it."""
        keys, existing, values = [NO_ROWS.keys], [NO_ROWS.keys], [NO_ROWS.values]
        schema = self._opened.schema()
        for record in self._records:
            if not window[record.key_group_range.start : record.key_group_range.end + 1].any():
                continue
            for batch in read_changes(self._opened, self._state, record):
                changed = as_ragged(batch["key"])
                inside = window[key_groups_of(changed, prefix_width(schema.max_parallelism))]
                exists = inside & (batch["change"].to_numpy() != DELETED)
                keys.append(changed.take(np.flatnonzero(inside)))
                existing.append(changed.take(np.flatnonzero(exists)))
                values.append(encode_values(schema.state(self._state), batch["value"].filter(pa.array(exists))))
        rows = find_rows(before.keys, concat(keys))
        return before.take(rows[rows >= 0]), StateRows(concat(existing), concat(values))
