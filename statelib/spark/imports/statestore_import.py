"""The import of a Structured Streaming state store as a savepoint, from which a pipeline can start."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.operator.state import OperatorStateBackend
from statelib.definition.columns import event_schema, key_array
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.declining import declining
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import abort, check, register
from statelib.flows.savepoint.imports import begin_import
from statelib.flows.wiring import Deployment
from statelib.functions.interval import IntervalResult
from statelib.functions.state_function import Progress
from statelib.model.checkpoint import SubtaskReport
from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointRecord
from statelib.model.state import StateDescriptor
from statelib.serializers.entries.values import value_arrow_type
from statelib.serializers.registry import codec_of
from statelib.spark.imports.loaded_rows import load_rows
from statelib.spark.imports.seed_rows import Entries
from statelib.spark.imports.statestore import USER_KEY, VALUE, StateStoreMapping, entries_of, read_statestore
from statelib.spark.session.job_failures import as_own
from statelib.spark.snapshot.driver import run_subtasks
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask


@dataclass(frozen=True)
class StateStoreImport:
    """A state store to import. ``location``: the checkpoint location of a streaming query. ``options``: options of
    Spark's ``statestore`` source. ``mapping``: the mapping of the store to a state."""

    location: str
    options: Mapping[str, str]
    mapping: StateStoreMapping

    def __str__(self) -> str:
        chosen = "".join(f" {name}={value}" for name, value in sorted(self.options.items()))
        return f"{self.location}{chosen} {self.mapping}"


def import_statestore(
    spark: SparkSession, deployment: Deployment, pipeline: Pipeline, wanted: StateStoreImport, owner: str
) -> CheckpointRecord:
    """Write a savepoint of the pipeline with the entries of the store, and return its completed record. The same import
    repeated returns the same savepoint. The entries become the pipeline's state when the savepoint is restored.

    Raises InvalidRequestError (``duplicate-key``) if two entries of the store have the same key, and
    (``bad-accumulator``) for a value that no events make, and the errors of :func:`begin_import`,
    :func:`read_statestore` and :func:`entries_of`. After an error, the savepoint is aborted."""
    rows = entries_of(read_statestore(spark, wanted.location, wanted.options), pipeline, wanted.mapping)
    begun = begin_import(deployment, pipeline, str(wanted), owner)
    name = pipeline.name
    if not begun.already_completed:
        try:
            _take(deployment, pipeline, wanted.mapping.state, rows, begun.checkpoint_id)
        except Exception as error:
            abort(deployment, name, begun.checkpoint_id, f"import of {wanted}: {as_own(error) or error}")
            raise
    return deployment.catalog().get(name, begun.checkpoint_id)


def _take(deployment: Deployment, pipeline: Pipeline, state: str, rows: DataFrame, checkpoint_id: CheckpointId) -> None:
    """Run all steps of the savepoint, from its tasks to the commit. Steps that an earlier attempt has completed are not
    repeated."""
    plan = plan_snapshot(deployment, pipeline, checkpoint_id)
    if plan is not None:
        with declining(deployment, plan):
            columns = _entry_schema(pipeline, pipeline.schema().state(state))
            task = _task(Work(deployment.for_workers(), pipeline, plan), state)
            reports = run_subtasks(
                rows.sparkSession, pipeline, plan.record.parallelism, rows, task, attempt=plan.attempt, columns=columns
            )
            publish(deployment, pipeline, plan, rows.count(), reports)
    report = check(deployment, pipeline, checkpoint_id)
    register(deployment, pipeline, checkpoint_id, report.report_uri)


def _entry_schema(pipeline: Pipeline, descriptor: StateDescriptor) -> pa.Schema:
    """Return the schema of the columns of :func:`entries_of`, in the types of the state."""
    keys = [event_schema(pipeline).field(name) for name in pipeline.key]
    if descriptor.user_key_type is not None:
        keys.append(pa.field(USER_KEY, codec_of(descriptor.user_key_type).arrow_type))
    return pa.schema([*keys, pa.field(VALUE, value_arrow_type(descriptor))])


def _task(work: Work, state: str) -> Callable[[int, int, pa.Table], SubtaskReport]:
    put = PutEntries(state)
    return lambda subtask, task, entries: snapshot_subtask(work, subtask, task, entries, change=put)


@dataclass(frozen=True)
class PutEntries:
    """A change that loads each row as one entry into an empty state. It changes neither timers nor operator state."""

    state: str

    def __call__(
        self,
        pipeline: Pipeline,
        backend: KeyedStateBackend,
        entries: pa.Table,
        progress: Progress,  # noqa: ARG002
        operator: OperatorStateBackend,  # noqa: ARG002
    ) -> IntervalResult:
        if not len(entries):
            return IntervalResult()
        descriptor = backend.schema.state(self.state)
        user_keys = None if descriptor.user_key_type is None else entries[USER_KEY].combine_chunks()
        given = Entries(descriptor, key_array(pipeline, entries), entries[VALUE].combine_chunks(), user_keys)
        stored = given.stored(pipeline)
        repeated = load_rows(backend, self.state, stored.keys, stored.values, stored.user_keys)
        if len(repeated):
            raise InvalidRequestError(
                f"{pipeline.name}: state {self.state!r}: two entries of the store have the key {repeated[0]}",
                kind="duplicate-key",
                hint="map what tells them apart, a window for instance, to a key column or to the user key",
            )
        return IntervalResult()
