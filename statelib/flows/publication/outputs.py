"""The rows of an output as a feed: those that the runs in the lineage of a checkpoint emitted, each once.

The checkpoint of the run that emitted a row, and its number there, identify it. The rows of one checkpoint are added
together, and taken back together if a restore leaves the checkpoint behind.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statelib.definition.output_forms import OutputForm, output_forms
from statelib.definition.pipeline import Pipeline
from statelib.definition.published_columns import ROW_NUMBER, output_columns
from statelib.errors import NotFoundError
from statelib.flows.wiring import Deployment
from statelib.model.checkpoint import DataInterval
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.publication.feed import MOMENT, feed_table
from statelib.publication.target import DELETE, INSERT, Commit, FeedContent, Write
from statelib.savepoints.emitted_outputs import emitted_rows
from statelib.savepoints.opened import Checkpoint, located

_IDENTITY = ("checkpoint_id", "interval_start", "interval_end", ROW_NUMBER)
_OF_RUNS = (*_IDENTITY, "commit", "change")
"""The columns of a feed that tell which rows it has of which checkpoint."""
_ROWS_AT_ONCE = 1 << 16

History = Callable[[Sequence[str]], Iterator[pa.Table]]
"""A function that yields columns of the rows of a feed: see
:meth:`statelib.publication.target.TableTarget.feed_rows`."""


@dataclass(frozen=True)
class PublishedRun:
    """The rows of one checkpoint in a feed. ``added``: the first commit that added them. ``alive``: the newest commit
    with these rows added them, and did not take them back."""

    checkpoint_id: CheckpointId
    interval: DataInterval | None
    rows: int
    added: int
    alive: bool


@dataclass(frozen=True)
class OutputChanges:
    """The changes that lead a feed from its newest commit to a checkpoint. ``emitted``: the checkpoints whose rows are
    added, oldest first. ``taken_back``: the rows of abandoned checkpoints. ``added_again``: checkpoints whose files are
    gone, but whose rows the feed itself has, taken back. ``lost``: those whose files are gone, and whose rows it never
    had."""

    emitted: tuple[CheckpointRecord, ...]
    taken_back: tuple[PublishedRun, ...] = ()
    added_again: tuple[PublishedRun, ...] = ()
    lost: tuple[CheckpointId, ...] = ()


def output_changes(
    deployment: Deployment, record: CheckpointRecord, newest: Commit | None, history: History
) -> OutputChanges:
    """Return the changes that lead a feed from its newest commit to the checkpoint ``record``. A new feed begins with
    the rows of every checkpoint in the lineage that still exists."""
    if newest is not None and record.base == newest.checkpoint_id:
        return OutputChanges((record,))
    lineage = deployment.catalog().lineage(record.pipeline, record.checkpoint_id)[::-1]
    published = _published_runs(history(_OF_RUNS)) if newest else {}
    missing = [each for each in lineage if not _is_alive(each, published)]
    gone = [each.checkpoint_id for each in missing if each.state is not CheckpointState.COMPLETED]
    before = lineage_ids(deployment, record.pipeline, newest.checkpoint_id) if newest else None
    ids = {each.checkpoint_id for each in lineage}
    unknown = lineage[0].base or 0  # the catalog does not have what is older, as after a rebuild
    return OutputChanges(
        tuple(each for each in missing if each.state is CheckpointState.COMPLETED),
        tuple(run for number, run in sorted(published.items()) if run.alive and number > unknown and number not in ids),
        tuple(published[number] for number in gone if number in published),
        tuple(number for number in gone if before is not None and number not in before and number not in published),
    )


def lineage_ids(
    deployment: Deployment, pipeline: PipelineName, checkpoint_id: CheckpointId
) -> frozenset[CheckpointId] | None:
    """Return the ids of a checkpoint and of all before it; None if the catalog does not have it, as after a rebuild."""
    try:
        lineage = deployment.catalog().lineage(pipeline, checkpoint_id)
    except NotFoundError:
        return None
    return frozenset(record.checkpoint_id for record in lineage)


def _published_runs(tables: Iterable[pa.Table]) -> dict[CheckpointId, PublishedRun]:
    """Return the rows of each checkpoint in a feed. ``tables``: its columns :data:`_OF_RUNS`."""
    names = [name for name in _OF_RUNS if name != ROW_NUMBER]
    counts: dict[tuple[int, int], PublishedRun] = {}
    for table in tables:
        groups = table.group_by(names).aggregate([(ROW_NUMBER, "count")])
        times = [groups[name].cast(MOMENT).cast(pa.int64()).to_pylist() for name in names[1:3]]
        plain = [groups[name].to_pylist() for name in ("checkpoint_id", "commit", "change", f"{ROW_NUMBER}_count")]
        for start, end, number, commit, change, rows in zip(*times, *plain, strict=True):
            interval = None if start is None else DataInterval(start, end)
            run = PublishedRun(CheckpointId(number), interval, rows, commit, change == INSERT)
            before = counts.get((number, commit))
            counts[number, commit] = run if before is None else replace(run, rows=rows + before.rows)
    runs: dict[CheckpointId, PublishedRun] = {}
    for _, run in sorted(counts.items()):
        first = runs.get(run.checkpoint_id, run)
        runs[run.checkpoint_id] = replace(run, added=first.added)
    return runs


class OutputContent(FeedContent):
    """The content of the feed of an output. ``opened``: the checkpoints of ``changes.emitted``."""

    def __init__(
        self,
        form: OutputForm,
        columns: Mapping[str, str],
        changes: OutputChanges,
        *,
        opened: Callable[[CheckpointRecord], Checkpoint],
        history: History,
    ) -> None:
        self._form = form
        self._types = form.schema
        self._columns = columns
        self._changes = changes
        self._opened = opened
        self._history = history

    @property
    def schema(self) -> pa.Schema:
        return pa.schema(
            [(ROW_NUMBER, pa.int64()), *((name, self._types.field(of).type) for name, of in self._columns.items())]
        )

    @property
    def identity(self) -> tuple[str, ...]:
        return _IDENTITY

    def write_changes(self, commit: Commit, write: Write) -> None:
        write(feed_table(commit, pa.nulls(0, pa.string()), self.schema.empty_table()))
        for run in self._changes.taken_back:
            for first in range(1, run.rows + 1, _ROWS_AT_ONCE):
                rows = self._numbered(first, min(_ROWS_AT_ONCE, run.rows + 1 - first))
                write(_of_run(commit, run.checkpoint_id, run.interval, DELETE, rows))
        if self._changes.added_again:
            self._add_again(commit, write)
        for record in self._changes.emitted:
            first = 1
            for table in self._emitted(record):
                rows = self._numbered(first, len(table), table)
                write(_of_run(commit, record.checkpoint_id, record.interval, INSERT, rows))
                first += len(table)

    def _add_again(self, commit: Commit, write: Write) -> None:
        """Add rows that the feed had before, from the commit that added them."""
        for table in self._history(["checkpoint_id", "commit", *self.schema.names]):
            for run in self._changes.added_again:
                of_run = pc.and_(
                    pc.equal(table["checkpoint_id"], run.checkpoint_id), pc.equal(table["commit"], run.added)
                )
                rows = table.filter(of_run).select(self.schema.names).cast(self.schema)
                if len(rows):
                    write(_of_run(commit, run.checkpoint_id, run.interval, INSERT, rows))

    def _emitted(self, record: CheckpointRecord) -> Iterator[pa.Table]:
        """Yield the rows that the run of a checkpoint emitted, with the columns that the pipeline file declares now."""
        opened = self._opened(record)
        manifest = opened.manifest
        if manifest is None or (manifest.pipeline, manifest.checkpoint_id) != (record.pipeline, record.checkpoint_id):
            return  # the rows of an imported snapshot are those of another checkpoint
        with located(opened.directory):
            yield from map(self._form.flat, emitted_rows(opened, self._form.output))

    def _numbered(self, first: int, count: int, table: pa.Table | None = None) -> pa.Table:
        """Return rows with consecutive numbers: those of ``table``, or null values."""
        numbers = pa.array(np.arange(first, first + count, dtype=np.int64))
        nulls = {name: pa.nulls(count, self._types.field(of).type) for name, of in self._columns.items()}
        values = nulls if table is None else {name: table[of] for name, of in self._columns.items()}
        return pa.table([numbers, *values.values()], schema=self.schema)


def output_content(
    deployment: Deployment, pipeline: Pipeline, table: str, changes: OutputChanges, history: History
) -> OutputContent:
    """Return the content of a published table that is the feed of an output."""
    publication = pipeline.publish[table]
    output = publication.output
    assert output is not None, "a state has another content"
    form, columns = output_forms(pipeline)[output], output_columns(pipeline, publication)
    return OutputContent(form, columns, changes, opened=deployment.open, history=history)


def _is_alive(record: CheckpointRecord, published: Mapping[CheckpointId, PublishedRun]) -> bool:
    run = published.get(record.checkpoint_id)
    return run is not None and run.alive


def _of_run(
    commit: Commit, checkpoint_id: CheckpointId, interval: DataInterval | None, change: str, rows: pa.Table
) -> pa.Table:
    """Return rows of the feed that name the checkpoint that emitted them, and its interval."""
    changes = pa.repeat(pa.scalar(change), len(rows))
    return feed_table(replace(commit, checkpoint_id=checkpoint_id, interval=interval), changes, rows)
