"""A check that serialized entries lie in the key groups of their keys."""

import numpy as np
import numpy.typing as npt

from statelib.errors import CorruptStateError
from statelib.model.key_hash import FieldsHash
from statelib.model.state import KeyedStateSchema, StateDescriptor
from statelib.serializers.entries.keys import decode_keys
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.plain_hashes import plain_hashes, plain_key_group

MAX_CHECKED_ENTRIES = 2000
"""The most entries that are checked. If a state has more, this many are chosen evenly."""


def prove_key_groups(
    schema: KeyedStateSchema, descriptor: StateDescriptor, rows: StateRows, rule: FieldsHash | None = None
) -> None:
    """Compute the key group of each key, or of a sample of the keys, once more and one by one.

    Raise CorruptStateError (``wrong-key-group``): Flink would accept such an entry and never find it again."""
    decoded = decode_keys(schema, descriptor, rows.keys.take(_chosen_entries(len(rows))))
    hashes = plain_hashes(schema.key_type, decoded.keys, rule)
    for row, (hash_code, group) in enumerate(zip(hashes, decoded.key_groups.tolist(), strict=True)):
        expected = plain_key_group(hash_code, schema.max_parallelism)
        if group != expected:
            raise CorruptStateError(
                f"state {descriptor.name!r}: key {str(decoded.keys[row])[:200]} in key group {group}, "
                f"it belongs to {expected} of {schema.max_parallelism}",
                kind="wrong-key-group",
                hint="hash codes must be those of the key's Java class",
            )


def _chosen_entries(entries: int) -> npt.NDArray[np.int64]:
    if entries <= MAX_CHECKED_ENTRIES:
        return np.arange(entries, dtype=np.int64)
    return np.linspace(0, entries - 1, MAX_CHECKED_ENTRIES).astype(np.int64)
