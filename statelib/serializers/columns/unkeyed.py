"""The base of codecs whose values cannot be keys."""

from dataclasses import dataclass

import pyarrow as pa

from statelib.model.types import StateType
from statelib.serializers.columns.codec import Hashes
from statelib.serializers.columns.java_hashes import no_key_hash


@dataclass(frozen=True)
class Unkeyed:
    """A codec without hash codes, because Flink refuses its type as a key."""

    type: StateType

    def java_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)

    def deep_hash(self, values: pa.Array) -> Hashes:  # noqa: ARG002
        raise no_key_hash(self.type)
