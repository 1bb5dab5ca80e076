"""The key groups of keys that a query names, for reading only these key groups."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from statelib.errors import StatelibError
from statelib.model.state import KeyedStateSchema
from statelib.model.types import BOOLEAN, BYTE, DATE, INT, LONG, SHORT, STRING
from statelib.serializers.entries.keys import key_groups
from statelib.serializers.registry import codec_of

EXACT = (BOOLEAN, BYTE, SHORT, INT, LONG, STRING, DATE)
"""The types of keys for which equality in SQL is equality in Java. For floats (-0.0, NaN) and times (nanoseconds) it is
not."""


def key_groups_of(schema: KeyedStateSchema, keys: Sequence[Any]) -> npt.NDArray[np.int64] | None:
    """Return the key groups of the keys; None, so that no key group is excluded, if ``keys`` is empty or if one of them
    does not have the type of the schema's key."""
    if not keys:
        return None
    try:
        column = pa.array(keys, codec_of(schema.key_type).arrow_type)
        return key_groups(schema, column).astype(np.int64)
    except (pa.ArrowException, StatelibError, TypeError, ValueError, OverflowError):
        return None
