"""The writing of a savepoint from tables, in Spark: rows are encoded as entries, and entries are moved to the task of
the subtask that owns them.

Spark sorts the entries, if necessary on disk, so that a task holds one batch and one key group in memory at a time. The
command line uses the same code with a local master (decision 61)."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from statelib.definition.bootstrap import Bootstrap, OperatorStateOf, Rows, StateOf
from statelib.errors import NotFoundError, StatelibError
from statelib.flows.savepoint.bootstrap import Batch, chunks, entries_of, operator_state_of
from statelib.formats.operator_state import OperatorStateContent
from statelib.model.checkpoint import OperatorState
from statelib.model.handles import KeyGroupsSavepointStateHandle, OperatorStreamStateHandle
from statelib.model.ids import AttemptId
from statelib.model.key_groups import prefix_width, subtask_of, subtask_range
from statelib.model.task_error import TaskError
from statelib.restore.entries import iter_entries
from statelib.savepoints.opened import Checkpoint, to_table
from statelib.savepoints.writing.new_savepoint import (
    NewSavepoint,
    keyed_operator_state,
    operator_without_keys,
    with_operator_states,
)
from statelib.serializers.entries.rows import NO_ROWS, StateRows, key_groups_of
from statelib.snapshots.writers.keyed import write_subtask
from statelib.snapshots.writers.operator import write_operator_states
from statelib.spark.events.absent_columns import Used, check_files
from statelib.spark.events.source import SourcePlaces, endpoint_of_sources, is_within_reach
from statelib.spark.events.unread_files import check_all_files_are_read
from statelib.spark.session.either_kind import analysed
from statelib.spark.snapshot.subtask.worker import task_attempt
from statelib.storage.local.scratch import scratch_directory
from statelib.storage.ports.views import StorageReference
from statelib.storage.registry import new_attempt
from statelib.wire.ragged import as_arrow, as_ragged

COLUMNS = ("task", "key_group", "state", "key", "value")
SCHEMA = "task int, key_group int, state int, key binary, value binary"
_ARROW = pa.schema([(n, pa.int32()) for n in COLUMNS[:3]] + [(n, pa.large_binary()) for n in COLUMNS[3:]])
MARKER, FAILED = -1, -2
"""The two special values of the column ``state``. Each task has one row with ``MARKER``, so that a task without entries
also runs and writes an empty stream. The value of a row with ``FAILED`` is a TaskError as JSON: the driver raises its
error, and Spark does not retry the task."""

Batches = Iterable[pa.RecordBatch]
Read = Callable[[str, str], "_Source"]
"""A function that returns the rows of a state: (uid of the operator, name of the state) -> rows."""


@dataclass(frozen=True)
class Written:
    """The result of one task: the handle and the number of entries per state, or the error."""

    task: int
    attempt: AttemptId
    handle: KeyGroupsSavepointStateHandle | None = None
    entries: tuple[int, ...] = ()
    error: TaskError | None = None


@dataclass(frozen=True)
class BootstrapResult:
    """The savepoint that was written. ``directory``: its URI. ``entries``: the number of entries, by uid and state."""

    directory: str
    entries: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Job:
    """The input that all tasks share. It can be pickled."""

    bootstrap: Bootstrap
    place: NewSavepoint
    reference: StorageReference
    attempt: AttemptId


def run_bootstrap(
    spark: SparkSession,
    bootstrap: Bootstrap,
    place: NewSavepoint,
    open_snapshot: Callable[[str], Checkpoint],
) -> BootstrapResult:
    """Write the savepoint that ``bootstrap`` describes to ``place``. ``open_snapshot``: opens the snapshot of a URI.

    Raises InvalidRequestError (``duplicate-key``, ``unread-files``; ``missing-column``, ``column-type`` for files that
    differ), NotFoundError (``no-source``), ConflictError (``location-taken``), and the errors of reading and encoding
    rows. After an error, everything that was written is removed."""
    _check_files(spark, bootstrap, SourcePlaces("", place.target, endpoint_of_sources()))
    with place.claimed() as reference:
        job = Job(bootstrap, place, reference, new_attempt())
        return _written(spark, job, partial(_source, spark, bootstrap, open_snapshot))


def _check_files(spark: SparkSession, bootstrap: Bootstrap, places: SourcePlaces) -> None:
    """Check that all files of each path are read, and compare them. Raises InvalidRequestError (``unread-files``,
    ``missing-column``, ``column-type``)."""
    read: dict[str, list[str]] = {}
    for operator in bootstrap.operators.values():
        key = [] if operator.key is None else [operator.key.model_dump()]
        states: dict[str, StateOf | OperatorStateOf] = {**operator.operator_states, **operator.states}
        for name, described in states.items():
            path = (described.rows or operator.rows or Rows()).parquet
            if path is not None:
                parts = [described.model_dump(exclude={"rows"}), *(key if name in operator.states else [])]
                read.setdefault(path, []).extend(_texts(parts))
    for path, texts in read.items():
        within_reach = is_within_reach(spark, path, places)
        check_all_files_are_read(spark, path, path, {}, file_format="parquet", within_reach=within_reach, option="")
        if within_reach:
            check_files(_parquet(spark, path), "parquet", Used(texts), path)


def _texts(part: object) -> Iterator[str]:
    """Yield each text in a description, among them the names of columns."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, Mapping | list | tuple):
        for each in part.values() if isinstance(part, Mapping) else part:
            yield from _texts(each)


def _written(spark: SparkSession, job: Job, read: Read) -> BootstrapResult:
    bootstrap, place = job.bootstrap, job.place
    with place.uploads(job.reference, bootstrap.parallelism * len(bootstrap.keyed), attempt=job.attempt) as uploads:
        contents = {uid: _contents(bootstrap, uid, read) for uid in bootstrap.operators}
        handles = {
            uid: write_operator_states(uploads, held, bootstrap.parallelism) for uid, held in contents.items() if held
        }
        written = _run_tasks(spark, job, read) if bootstrap.keyed else []
        uploads.complete()
    counts = _counts(bootstrap, written)
    for uid, held in contents.items():
        counts.setdefault(uid, {}).update({content.descriptor.name: len(content) for content in held})
    return BootstrapResult(place.publish(job.reference, _operators(bootstrap, written, handles)), counts)


def _contents(bootstrap: Bootstrap, uid: str, read: Read) -> list[OperatorStateContent]:
    """Return the operator states of an operator. They are small enough to be held in memory."""
    names = bootstrap.operators[uid].operator_states
    return [operator_state_of(bootstrap, uid, name, read(uid, name).table()) for name in names]


def _run_tasks(spark: SparkSession, job: Job, read: Read) -> list[Written]:
    """Run the tasks and return their results, in the order of the tasks. If a task failed, the files of the others are
    discarded and its error is raised."""
    bootstrap = job.bootstrap
    tasks = bootstrap.parallelism * len(bootstrap.keyed)
    rows = _markers(spark, tasks)
    for uid in bootstrap.keyed:
        for name in bootstrap.operators[uid].states:
            rows = rows.unionAll(read(uid, name).entries(_encoder(bootstrap, uid, name)))
    owned = rows.repartitionById(tasks, f.col("task")).sortWithinPartitions("key_group", "state", "key")
    collected = owned.mapInArrow(_writer(job), "report binary").collect()
    # The bytes come from this very job's own tasks, through Spark's own result channel.
    written = sorted((pickle.loads(row.report) for row in collected), key=lambda w: w.task)  # noqa: S301
    error = next((w.error for w in written if w.error), None)
    if error is not None:
        _discard(job, written)
        raise error.error() or RuntimeError(str(error))
    return written


def _markers(spark: SparkSession, tasks: int) -> DataFrame:
    return spark.range(tasks, numPartitions=1).select(
        f.col("id").cast("int").alias("task"), f.lit(-1).alias("key_group"), f.lit(MARKER).alias("state"),
        f.lit(None).cast("binary").alias("key"), f.lit(None).cast("binary").alias("value"),
    )  # fmt: skip


@dataclass(frozen=True)
class _Source:
    """The rows of one state: a DataFrame, or a state of a snapshot, whose values are not converted to Spark types."""

    spark: SparkSession
    frame: DataFrame | None
    opened: Checkpoint | None
    rows: Rows

    def entries(self, encode: Callable[[Batches], Batches]) -> DataFrame:
        """Return a DataFrame of the entries into which ``encode`` turns the rows, task by task."""
        if self.frame is not None:
            return self.frame.mapInArrow(encode, SCHEMA)
        opened, rows = self._snapshot(), self.rows
        handles = len(opened.handles())
        return self.spark.range(handles, numPartitions=max(handles, 1)).mapInArrow(
            lambda batches: encode(_of_snapshot(opened, rows, batches)), SCHEMA
        )

    def table(self) -> pa.Table:
        """Return all rows as a table in the driver's memory."""
        if self.frame is not None:
            return self.frame.toArrow()
        opened = self._snapshot()
        schema = opened.schema()
        empty = to_table(schema, schema.state(self.rows.state or ""), NO_ROWS).schema
        numbers = pa.RecordBatch.from_pydict({"id": range(len(opened.handles()))})
        return pa.Table.from_batches(_of_snapshot(opened, self.rows, [numbers]), empty)

    def _snapshot(self) -> Checkpoint:
        assert self.opened is not None
        return self.opened


def _source(
    spark: SparkSession,
    bootstrap: Bootstrap,
    open_snapshot: Callable[[str], Checkpoint],
    uid: str,
    state: str,
) -> _Source:
    """Return the rows of a state in the file, or those of its operator."""
    operator = bootstrap.operators[uid]
    described = operator.states[state] if state in operator.states else operator.operator_states[state]
    rows = described.rows or operator.rows or Rows()
    if rows.snapshot is None:
        return _Source(spark, _parquet(spark, rows.parquet or ""), None, rows)
    opened = open_snapshot(rows.snapshot)
    if rows.operator is not None:
        opened = opened.select(rows.operator)
    opened.schema().state(rows.state or "")
    return _Source(spark, None, opened, rows)


def _parquet(spark: SparkSession, path: str) -> DataFrame:
    try:
        return analysed(spark.read.parquet(path))
    except AnalysisException as error:
        raise NotFoundError(f"{path} cannot be read: {error.getCondition()}", kind="no-source") from error


def _of_snapshot(opened: Checkpoint, rows: Rows, batches: Batches) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one state from the handles whose indices are in ``batches``."""
    schema = opened.schema()
    descriptor = schema.state(rows.state or "")
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with scratch_directory(None, "read") as scratch:
                for index, entries in iter_entries(opened.sources()[number], None, f"{scratch}/copy"):
                    if schema.states[index] == descriptor and len(entries):
                        yield from to_table(schema, descriptor, entries).to_batches()


def _encoder(bootstrap: Bootstrap, uid: str, state: str) -> Callable[[Batches], Batches]:
    first = list(bootstrap.keyed).index(uid) * bootstrap.parallelism
    index = list(bootstrap.operators[uid].states).index(state)
    width = prefix_width(bootstrap.max_parallelism)

    def encode(batches: Batches) -> Batches:
        try:
            for batch in batches:
                rows = entries_of(bootstrap, uid, state, pa.Table.from_batches([batch]))
                groups = key_groups_of(rows.keys, width)
                owner = subtask_of(groups, bootstrap.parallelism, bootstrap.max_parallelism)
                yield _batch(owner + first, groups, index, rows)
        except StatelibError as error:
            failed = pa.array([TaskError.of(error, 0).to_json().encode()], pa.large_binary())
            numbers = [pa.array([n], pa.int32()) for n in (0, -1, FAILED)]
            yield pa.RecordBatch.from_arrays([*numbers, pa.array([b""], pa.large_binary()), failed], schema=_ARROW)

    return encode


def _batch(tasks: np.ndarray, groups: np.ndarray, state: int, rows: StateRows) -> pa.RecordBatch:
    numbers = (tasks.astype(np.int32), groups, np.full(len(rows), state, np.int32))
    return pa.RecordBatch.from_arrays(
        [*map(pa.array, numbers), as_arrow(rows.keys), as_arrow(rows.values)], schema=_ARROW
    )


def _writer(job: Job) -> Callable[[Batches], Batches]:
    def write(batches: Batches) -> Batches:
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("a worker runs inside a Spark task only")
        task, attempt = context.partitionId(), task_attempt(job.attempt, context.taskAttemptId())
        try:
            written = _write(job, task, attempt, batches)
        except StatelibError as error:
            written = Written(task, attempt, error=TaskError.of(error, task))
        yield pa.RecordBatch.from_pydict({"report": pa.array([pickle.dumps(written)], pa.binary())})

    return write


def _write(job: Job, task: int, attempt: AttemptId, batches: Batches) -> Written:
    bootstrap = job.bootstrap
    number, subtask = divmod(task, bootstrap.parallelism)
    operator = bootstrap.operator(list(bootstrap.keyed)[number])
    first = subtask_range(subtask, bootstrap.parallelism, bootstrap.max_parallelism).start
    with job.place.uploads(job.reference, task, attempt=attempt) as uploads:
        content = chunks(operator, first, map(_decoded, batches))
        handle, statistics = write_subtask(uploads, operator, subtask, content, compressed=job.place.compressed)
        uploads.complete()
    return Written(task, attempt, handle, tuple(s.total_entries for s in statistics))


def _decoded(batch: pa.RecordBatch) -> Batch:
    """Return the entries of a batch, without marker rows. Raises the error in a row with ``FAILED``."""
    states = batch.column("state").to_numpy()
    for row in np.flatnonzero(states == FAILED).tolist():
        failed = TaskError.from_json(batch.column("value")[row].as_py().decode())
        raise failed.error() or RuntimeError(str(failed))
    entries = batch.filter(pa.array(states >= 0))
    keys, values = (as_ragged(entries.column(n).cast(pa.large_binary())) for n in ("key", "value"))
    numbers = (entries.column(n).to_numpy() for n in ("key_group", "state"))
    return (*numbers, StateRows(keys, values))


def _discard(job: Job, written: list[Written]) -> None:
    """Remove the files of the tasks that did not fail."""
    for result in written:
        if result.handle is not None:
            job.place.streams(job.reference, result.task, attempt=result.attempt).discard(result.handle.stream)


def _operators(
    bootstrap: Bootstrap, written: list[Written], states: Mapping[str, list[OperatorStreamStateHandle]]
) -> list[OperatorState]:
    """Return the operators of the savepoint. ``states``: the handles of operator state by uid, one per subtask."""
    handles = [w.handle for w in written if w.handle is not None]
    step, keyed = bootstrap.parallelism, list(bootstrap.keyed)
    made = []
    for uid in bootstrap.operators:
        if uid in bootstrap.keyed:
            first = keyed.index(uid) * step
            operator = keyed_operator_state(bootstrap.operator(uid), handles[first : first + step])
        else:
            operator = operator_without_keys(uid, step, bootstrap.max_parallelism)
        made.append(with_operator_states(operator, states.get(uid, [])))
    return made


def _counts(bootstrap: Bootstrap, written: list[Written]) -> dict[str, dict[str, int]]:
    step, counts = bootstrap.parallelism, {}
    for i, uid in enumerate(bootstrap.keyed):
        totals = np.sum([w.entries for w in written[i * step : (i + 1) * step]], axis=0).tolist()
        counts[uid] = dict(zip(bootstrap.operators[uid].states, totals, strict=True))
    return counts
