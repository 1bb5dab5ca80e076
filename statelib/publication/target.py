"""The port of a published table: what a target does, and what it needs from the state that is published.

A table has numbered commits. Each is the state of one checkpoint, and only the commit of number N + 1 follows that of
number N, so that of two publishers one commits and the other one sees it.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from statelib.errors import ConflictError, InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import AttemptId, CheckpointId
from statelib.model.key_groups import KeyGroupRange

INSERT, UPDATE, DELETE = "insert", "update", "delete"
"""The values of the column ``change`` of a feed."""
COMMIT_TAKEN = "commit-taken"

Write = Callable[[pa.Table], None]
"""A function that takes the next rows of a table."""


@dataclass(frozen=True)
class PublishedTable:
    """One published table as the pipeline file has it. ``changes``: it is a feed of changes, not the state itself.
    ``retain``: the number of commits that stay readable. ``sources``: the names of what each column has the values of,
    the present name first and then earlier ones. Commits record the present ones. ``former``: earlier names of the
    pipeline, whose table it continues."""

    target: str
    pipeline: str
    name: str
    changes: bool
    retain: int
    sources: Mapping[str, Sequence[str]] = field(default_factory=dict)
    former: tuple[str, ...] = ()

    @property
    def pipelines(self) -> tuple[str, ...]:
        """The names of the pipeline, the present one first."""
        return (self.pipeline, *self.former)

    def recorded_sources(self) -> dict[str, str]:
        """Return the present source of each column, as a commit records it."""
        return {name: names[0] for name, names in self.sources.items()}


@dataclass(frozen=True)
class Commit:
    """One commit of a table. ``number``: 1 for the first one. ``rows``: the number of rows that it wrote. ``snapshot``:
    see :func:`snapshot_hash`; '' in commits of earlier versions. ``pipeline``: the name of the pipeline that published
    it; '' for the present one."""

    number: int
    checkpoint_id: CheckpointId
    interval: DataInterval | None
    rows: int = 0
    snapshot: str = ""
    pipeline: str = ""


def snapshot_hash(attempt: AttemptId | None) -> str:
    """Return a text of 15 hexadecimal digits that no other snapshot has, also if another deployment, or one that has
    begun anew, gives it the same id. ``attempt``: the attempt that wrote the snapshot; '' is returned for None."""
    return "" if attempt is None else hashlib.sha256(attempt.encode()).hexdigest()[:15]


class FeedContent(ABC):
    """The changes up to one checkpoint, as the rows of a published feed."""

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The columns of the table, without those that every feed has."""

    @property
    @abstractmethod
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row."""

    @abstractmethod
    def write_changes(self, commit: Commit, write: Write) -> None:
        """Pass the rows of a feed that lead from the table's newest commit to this checkpoint to ``write``. There are
        one or more tables, of which the first may be empty."""


class Content(FeedContent):
    """The state of one checkpoint, as the rows of a published table."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """The approximate stored bytes of the state."""

    @property
    @abstractmethod
    def key_groups(self) -> KeyGroupRange:
        """All key groups of the state."""

    @abstractmethod
    def fingerprint(self, key_groups: KeyGroupRange) -> str:
        """Return a text that is equal for two checkpoints only if the key groups have equal rows; '' if there is
        none."""

    @abstractmethod
    def write_rows(self, ranges: Sequence[KeyGroupRange], write: Callable[[int], Write]) -> None:
        """Pass the rows of each range to the function that ``write`` returns for the index of the range, range after
        range, also if a range has no rows. The ranges are in ascending order."""


class TableTarget(Protocol):
    """A table at a place. Methods raise RetryableError if the place is in trouble, and InvalidRequestError
    (``foreign-target``) if something else wrote to the table."""

    def newest(self) -> Commit | None:
        """Return the newest commit, None if there is none yet."""
        ...

    def commit(self, commit: Commit, content: FeedContent) -> Commit:
        """Add a commit, which follows the newest one. Return it with its number of rows. Nothing of it is visible
        before all of it is. Unless the table is a feed, ``content`` has to be a :class:`Content`.

        Raises ConflictError (``commit-taken``) if another publisher added a commit of that number, and
        InvalidRequestError (``columns-changed``)."""
        ...

    def identities(self) -> Iterator[pa.Table]:
        """Yield the columns that identify a row, ``commit`` and ``change``, of every row of a feed, in any order. Other
        columns may be there, too. The rows of a table are insertions."""
        ...

    def feed_rows(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Yield these columns of every row of a feed, in any order."""
        ...

    def tidy(self) -> None:
        """Remove what no commit needs any more, and what killed publishers left behind."""
        ...


def taken(table: PublishedTable, number: int) -> ConflictError:
    """Return the error of a commit that another publisher has added."""
    return ConflictError(
        f"{table.target}: commit {number} exists already, another publisher was first",
        kind=COMMIT_TAKEN,
        hint=f"statelib publish {table.pipeline} publishes what is missing",
    )


def foreign(table: PublishedTable, problem: str) -> InvalidRequestError:
    """Return the error of a target to which something else has written."""
    return InvalidRequestError(
        f"{table.target}: {problem}",
        kind="foreign-target",
        hint=f"nothing was changed: move it away, or let publish.{table.name}.target name another directory; the state "
        "has all that is not published yet",
    )


def check_columns(
    table: PublishedTable, expected: Sequence[str], actual: Sequence[str], recorded: Mapping[str, str]
) -> None:
    """Raise InvalidRequestError (``columns-changed``) unless the table's columns are those that are to be published.
    ``recorded``: the sources of the columns in the newest commit, as far as it has them."""
    part, was, wanted = "the table", f"the columns {', '.join(actual)}", ", ".join(expected)
    if list(expected) == list(actual):
        others = [name for name, names in table.sources.items() if recorded.get(name, names[0]) not in names]
        if not others:
            return
        part, was, wanted = f"column {others[0]} of the table", recorded[others[0]], table.sources[others[0]][0]
    raise InvalidRequestError(
        f"{table.target}: {part} has {was}, and publish.{table.name} has {wanted}",
        kind="columns-changed",
        hint="publish to a new target, which begins with the whole state, or choose the old columns with 'columns'",
    )
