"""The number of distinct keys per key group as text, for the manifest and the catalog.

The text is base64 of little-endian 64-bit integers, one per key group.
"""

import base64

import numpy as np

from statelib.model.key_groups import all_key_groups
from statelib.model.state import KeyCounts


def key_counts_text(counts: KeyCounts) -> str:
    """Return the counts of all key groups as text; inverse of :func:`key_counts_from_text`."""
    return base64.b64encode(counts.keys.astype("<i8").tobytes()).decode("ascii")


def key_counts_from_text(text: str, max_parallelism: int) -> KeyCounts:
    """Return the counts that ``text`` holds; inverse of :func:`key_counts_text`.

    Raise ValueError unless the text has one count per key group and no count is negative.
    """
    data = base64.b64decode(text, validate=True)
    if len(data) != 8 * max_parallelism:
        raise ValueError(f"keys: {len(data)} bytes, expected {8 * max_parallelism}")
    counts = np.frombuffer(data, "<i8").astype(np.int64)
    if bool((counts < 0).any()):
        raise ValueError("keys: expected no negative counts")
    return KeyCounts(all_key_groups(max_parallelism), counts)
