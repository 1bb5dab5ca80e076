"""What is to be written into a savepoint of an operator that statelib does not run itself."""

from dataclasses import dataclass

from statelib.model.key_groups import check_parallelism
from statelib.model.key_hash import FieldsHash
from statelib.model.state import KeyedStateSchema


@dataclass(frozen=True)
class KeyedOperator:
    """Keyed state of the operator ``uid`` of a Flink job. ``schema.max_parallelism`` must be the job's, 1 to 32768;
    ``parallelism``: of the savepoint, the job may have another. ``key_hash``: for keys of a user's class.

    Raises InvalidRequestError (``bad-parallelism``, ``bad-max-parallelism``)."""

    uid: str
    schema: KeyedStateSchema
    parallelism: int = 1
    key_hash: FieldsHash | None = None

    def __post_init__(self) -> None:
        check_parallelism(self.parallelism, self.schema.max_parallelism)
