"""The state of one checkpoint as the rows of a published table, read in windows of key groups."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from statelib.backends.wrappers.ttl import plain_values
from statelib.definition.framed_state import framed
from statelib.definition.parts.publish import Publication
from statelib.definition.pipeline import Pipeline
from statelib.definition.published_columns import published_columns, published_state
from statelib.errors import InvalidRequestError
from statelib.flows.publication.changes import change_rows, recorded_rows, whole_changes
from statelib.flows.publication.published_keys import PublishedKeys
from statelib.model.key_groups import KeyGroupRange
from statelib.model.state import StateDescriptor
from statelib.publication.feed import feed_table
from statelib.publication.target import INSERT, Commit, Content, Write
from statelib.restore.schemas.compatibility import Compatibility, compare_states
from statelib.restore.schemas.matching import describe
from statelib.savepoints.diff.side import Mask, Side
from statelib.savepoints.diff.states import WINDOW_BYTES, Diff
from statelib.savepoints.opened import Checkpoint, to_table
from statelib.savepoints.recorded_changes import recorded_changes
from statelib.serializers.entries.rows import NO_ROWS, StateRows
from statelib.storage.local.scratch import scratch_directory

Identities = Callable[[], Iterator[pa.Table]]
"""A function that yields the rows of a feed: see :meth:`statelib.publication.target.TableTarget.identities`."""


class PublishedContent(Content):
    """The state of one checkpoint as the content of a table or a feed. ``opened``: the checkpoint. ``base``: the
    checkpoint of the table's newest commit, None if it is not available any more or there is no commit. ``follows``:
    the checkpoint was built on that of the newest commit. ``identities``: the rows of the feed, None if there is no
    commit. ``scratch``: the directory for temporary copies.

    Raises InvalidRequestError (``other-state``) if the checkpoint has the state in another form than the pipeline
    file."""

    def __init__(
        self,
        pipeline: Pipeline,
        publication: Publication,
        opened: Checkpoint,
        *,
        base: Checkpoint | None,
        follows: bool,
        identities: Identities | None,
        scratch: str | None,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self._opened = opened
        self._base = base
        self._follows = follows
        self._identities = identities
        self._scratch = scratch
        self._window_bytes = window_bytes
        self._columns = published_columns(pipeline, publication)
        self._plain = published_state(pipeline, publication)
        self._state = self._plain.name
        self._declared = pipeline.schema().state(self._state)
        self._stored_schema = opened.schema()
        check_same_form(pipeline, self._state, opened)
        self._stored = self._stored_schema.state(self._state)

    @property
    def schema(self) -> pa.Schema:
        return self._rows(NO_ROWS).schema

    @property
    def identity(self) -> tuple[str, ...]:
        return tuple(column.name for column in self._columns if column.is_key)

    @property
    def size_bytes(self) -> int:
        return sum(stream.size_bytes for stream in self._opened.state_streams(keyed=True))

    @property
    def key_groups(self) -> KeyGroupRange:
        return KeyGroupRange(0, self._stored_schema.max_parallelism - 1)

    def fingerprint(self, key_groups: KeyGroupRange) -> str:
        statistics = self._opened.statistics(key_groups)
        if statistics is None:
            return ""
        index = [state.name for state in self._stored_schema.states].index(self._state)
        recorded = statistics[index]
        form = describe(self._stored).encode()  # equal bytes are other rows if the fields are in another order
        return hashlib.blake2b(
            form + recorded.entries.tobytes() + recorded.digests.tobytes(), digest_size=16
        ).hexdigest()

    def write_rows(self, ranges: Sequence[KeyGroupRange], write: Callable[[int], Write]) -> None:
        for index, rows in self._read(ranges):
            write(index)(self._rows(rows))

    def write_changes(self, commit: Commit, write: Write) -> None:
        if self._identities is None:
            for _, rows in self._read([self.key_groups]):
                table = self._rows(rows)
                write(feed_table(commit, pa.repeat(pa.scalar(INSERT), len(table)), table))
        elif not (self._write_recorded(commit, write) or self._write_difference(commit, write)):
            keys = PublishedKeys(self._stored_schema, self._stored, self._columns, self._identities)
            for part in self._passes():
                published = keys.of(part)
                entries = (rows for _, rows in self._read([part]))
                for table in whole_changes(published, entries, self._rows, keys.table):
                    write(feed_table(commit, table["change"], table.drop_columns(["change"])))

    def _write_recorded(self, commit: Commit, write: Write) -> bool:
        """Write the changes that the run recorded. Return False, and write nothing, if there are none from the newest
        commit."""
        changes = recorded_changes(self._opened, self._state) if self._follows else None
        if changes is None:
            return False
        for table in changes:
            kinds, rows = recorded_rows(table, self._stored, self._columns)
            write(feed_table(commit, kinds, rows))
        return True

    def _write_difference(self, commit: Commit, write: Write) -> bool:
        """Write the difference from the base. Return False, and write nothing, if there is no base that has the state
        in the form of the pipeline file, so that it can be compared entry by entry."""
        if self._base is None or not _has_same_form(_stored_state(self._base, self._state), self._declared):
            return False

        def each(_: str, differences: pa.Table) -> None:
            changes, rows = change_rows(differences, self._stored, self._columns)
            write(feed_table(commit, changes, rows))

        diff = Diff(self._base, self._opened, self._scratch, self._window_bytes)
        (difference,) = diff.read((self._state,), each)
        return not difference.incomparable

    def _passes(self) -> Iterator[KeyGroupRange]:
        """Yield ranges of key groups whose rows are compared at a time with all rows of the feed."""
        whole = self.key_groups
        count = min(max(-(-self.size_bytes // (4 * self._window_bytes)), 1), len(whole))
        edges = np.linspace(0, len(whole), count + 1).astype(int).tolist()
        for start, stop in pairwise(edges):
            yield KeyGroupRange(start, stop - 1)

    def _read(self, ranges: Sequence[KeyGroupRange]) -> Iterator[tuple[int, StateRows]]:
        """Yield (index of the range, entries) in ascending order of key groups, in parts of bounded size."""
        with scratch_directory(self._scratch, "publish") as directory:
            side = Side(self._opened, directory)
            try:
                weights = side.weights()
                for index, key_groups in enumerate(ranges):
                    for window in _windows(key_groups, weights, self._window_bytes):
                        yield index, side.read(window)[side.index[self._state]]
            finally:
                side.close()

    def _rows(self, rows: StateRows) -> pa.Table:
        """Return entries as rows of the published table."""
        table = to_table(self._stored_schema, self._stored, rows)
        values = plain_values(self._stored, table["value"].combine_chunks())
        return framed(table.set_column(table.column_names.index("value"), "value", values), self._columns)


def check_same_form(pipeline: Pipeline, state: str, opened: Checkpoint) -> None:
    """Raise InvalidRequestError (``other-state``) unless the checkpoint has the state as the pipeline file has it, and
    the columns of the key in the order of the file."""
    if opened.manifest is not None and opened.manifest.has_reordered_key(pipeline.key):
        raise InvalidRequestError(
            f"the columns of the key are {', '.join(pipeline.key)} in the pipeline file, and {opened.directory} has "
            f"{', '.join(opened.manifest.key)}: the values of one column would be published as those of another",
            kind="other-state",
            hint="give the columns of the key their former order; its types and order are fixed",
        )
    declared, stored = pipeline.schema().state(state), _stored_state(opened, state)
    if not _has_same_form(stored, declared):
        text = "has no such state" if stored is None else f"has {describe(stored)}"
        raise InvalidRequestError(
            f"state {state!r} is {describe(declared)} in the pipeline file, and {opened.directory} {text}",
            kind="other-state",
            hint=f"run {pipeline.name} for its next interval: its checkpoint has the state as the file has it",
        )


def _stored_state(opened: Checkpoint, state: str) -> StateDescriptor | None:
    """Return the state of a checkpoint with a name, None if it has none."""
    return next((each for each in opened.schema().states if each.name == state), None)


def _has_same_form(stored: StateDescriptor | None, declared: StateDescriptor) -> bool:
    """Return whether stored values are those of the declared state, without a migration."""
    differences = () if stored is None else compare_states(stored, declared)
    return stored is not None and all(each.compatibility is Compatibility.AS_IS for each in differences)


def _windows(key_groups: KeyGroupRange, weights: np.ndarray, window_bytes: int) -> Iterator[Mask]:
    """Yield masks of the key groups of a range, in ascending order, each with up to about ``window_bytes`` bytes."""
    window, size = np.zeros(len(weights), np.bool_), 0.0
    for group in key_groups:
        if size and size + weights[group] > window_bytes:
            yield window
            window, size = np.zeros(len(weights), np.bool_), 0.0
        window[group] = True
        size += weights[group]
    yield window
