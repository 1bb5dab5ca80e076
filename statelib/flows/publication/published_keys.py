"""The keys that a feed of changes has rows of, for a comparison when the checkpoint of its newest commit is gone."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.backends.wrappers.ttl import plain_values
from statelib.definition.frame_columns import FrameColumn
from statelib.definition.framed_state import framed
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.model.types import Tuple
from statelib.publication.target import DELETE
from statelib.serializers.entries.keys import KEY_COLUMNS, encode_keys, key_columns, key_groups
from statelib.serializers.entries.rows import NO_ROWS
from statelib.serializers.entries.values import value_arrow_type
from statelib.wire.ragged import Ragged, as_arrow, as_ragged

_PENDING_ROWS = 1 << 18
"""The least number of rows that are gathered before the rows of equal keys are merged."""
_Numbers = npt.NDArray[np.int64]


class PublishedKeys:
    """The keys of the rows of a feed. ``identities``: yields the columns that identify a row, ``commit`` and
    ``change``."""

    def __init__(
        self,
        schema: KeyedStateSchema,
        state: StateDescriptor,
        columns: Sequence[FrameColumn],
        identities: Callable[[], Iterator[pa.Table]],
    ) -> None:
        self._schema = schema
        self._state = state
        self._columns = columns
        self._identities = identities
        self._types = self.table(NO_ROWS.keys).schema

    def of(self, wanted: KeyGroupRange) -> Ragged:
        """Return the composite keys of the rows that the folded feed has in a range of key groups."""
        keys, commits, alive = pa.nulls(0, pa.large_binary()), np.empty(0, np.int64), np.empty(0, np.bool_)
        pending: list[tuple[pa.Array, _Numbers, npt.NDArray[np.bool_]]] = []
        for table in self._identities():
            groups, composite = self._composite(table)
            inside = np.flatnonzero((groups >= wanted.start) & (groups <= wanted.end))
            commit = table["commit"].to_numpy()[inside]
            not_deleted = ~np.isin(table["change"].to_numpy()[inside], [DELETE])
            pending.append((as_arrow(composite.take(inside)), commit, not_deleted))
            if sum(len(part[0]) for part in pending) > max(_PENDING_ROWS, len(keys)):
                keys, commits, alive = _newest([(keys, commits, alive), *pending])
                pending = []
        keys, _, alive = _newest([(keys, commits, alive), *pending])
        return as_ragged(keys.filter(pa.array(alive)))

    def table(self, keys: Ragged) -> pa.Table:
        """Return rows of the published table with these composite keys and null values."""
        plain = pa.table(key_columns(self._schema, self._state, keys, KEY_COLUMNS))
        values = plain_values(self._state, pa.nulls(len(keys), value_arrow_type(self._state)))
        return framed(plain.append_column("value", values), self._columns)

    def _composite(self, table: pa.Table) -> tuple[npt.NDArray[np.int32], Ragged]:
        """Return the key group and the composite key of each row."""
        parts: dict[str, list[pa.Array]] = {}
        for column in self._columns:
            if column.is_key:  # formats store some types as other ones, such as milliseconds as microseconds
                values = table[column.name].combine_chunks().cast(self._types.field(column.name).type)
                parts.setdefault(column.source, []).append(values)
        keys = parts["key"]
        tuples = isinstance(self._schema.key_type, Tuple)
        key = pa.StructArray.from_arrays(keys, [f"f{i}" for i in range(len(keys))]) if tuples else keys[0]
        groups = key_groups(self._schema, key)
        windows = pa.StructArray.from_arrays(parts["namespace"], ["start", "end"]) if "namespace" in parts else None
        user_keys = parts.get("user_key", [None])[0]
        return groups, encode_keys(self._schema, self._state, key, groups, user_keys, namespaces=windows)


def _newest(
    parts: list[tuple[pa.Array, _Numbers, npt.NDArray[np.bool_]]],
) -> tuple[pa.Array, _Numbers, npt.NDArray[np.bool_]]:
    """Return the row of the newest commit per key."""
    coded = pa.chunked_array([part[0] for part in parts]).combine_chunks().dictionary_encode()
    codes = np.asarray(coded.indices.to_numpy(zero_copy_only=False), np.int64)
    commits, alive = (np.concatenate([part[i] for part in parts]) for i in (1, 2))
    order = np.lexsort([commits, codes])
    last = np.flatnonzero(np.diff(codes[order], append=-1))
    newest = order[last]
    return coded.dictionary, commits[newest], alive[newest]
