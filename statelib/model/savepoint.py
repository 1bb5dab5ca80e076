"""The description of an operator that a written savepoint contains and that statelib does not run itself."""

from dataclasses import dataclass

from statelib.model.key_groups import check_parallelism
from statelib.model.key_hash import FieldsHash
from statelib.model.state import KeyedStateSchema


@dataclass(frozen=True)
class KeyedOperator:
    """The keyed operator ``uid`` of a Flink job. ``schema.max_parallelism`` must be that of the job, 1 to 32768.
    ``parallelism`` is that of the savepoint; the job may have another one. ``key_hash``: the hash code of a key whose
    type is a user's class.

    Raises InvalidRequestError (``bad-parallelism``, ``bad-max-parallelism``)."""

    uid: str
    schema: KeyedStateSchema
    parallelism: int = 1
    key_hash: FieldsHash | None = None

    def __post_init__(self) -> None:
        check_parallelism(self.parallelism, self.schema.max_parallelism)
