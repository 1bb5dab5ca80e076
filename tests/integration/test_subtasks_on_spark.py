"""Each subtask runs once, whatever events there are, and gets those that it owns."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from statelib.definition.columns import event_schema
from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.errors import CorruptStateError
from statelib.model.checkpoint import EventCounts, SubtaskReport
from statelib.model.key_groups import subtask_range
from statelib.spark.snapshot.driver import run_subtasks

SUBTASKS = 5
PIPELINE = """\
name: parted
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{number: long, text: string}}}}
key: [{key}]
states: {{seen: {{kind: value, value: {{agg: count}}}}}}
on_null_key: drop
backend: heap
parallelism: 1
checkpoint: {{strategy: canonical}}
"""
EVENTS = pa.table({"number": [*range(200), None], "text": [*map(str, range(200)), None]})


@pytest.mark.parametrize("key", ["number", "text"])
@pytest.mark.parametrize(
    ("some", "count"),
    [
        pytest.param(lambda frame: frame, 201, id="all"),
        pytest.param(lambda frame: frame.filter("number = 7"), 1, id="one"),
        pytest.param(lambda frame: frame.filter("number < 0"), 0, id="none"),
        pytest.param(lambda frame: frame.filter("false"), 0, id="none, and Spark knows it"),
        pytest.param(lambda _: None, 0, id="nothing to move"),
    ],
)
def test_every_subtask_runs_and_receives_its_events(
    spark: SparkSession, tmp_path: Path, key: str, some: Callable[[DataFrame], DataFrame | None], count: int
) -> None:
    path = tmp_path / "parted.yaml"
    path.write_text(PIPELINE.format(key=key))
    pipeline = load_pipeline(path)
    schema = event_schema(pipeline)
    frame = some(spark.createDataFrame(EVENTS.cast(schema)))
    reports = run_subtasks(spark, pipeline, SUBTASKS, frame, _counting(pipeline, schema))
    assert sorted(report.subtask for report in reports) == list(range(SUBTASKS))
    assert sum(report.events.read for report in reports) == count
    if count > SUBTASKS:
        assert min(report.events.read for report in reports) > 0


def test_without_events_every_subtask_reads_none(spark: SparkSession, tmp_path: Path) -> None:
    """This also holds if the only column of events has the name that Spark gives to a range of numbers."""
    path = tmp_path / "parted.yaml"
    path.write_text(PIPELINE.format(key="id").replace("{number: long, text: string}", "{id: long}"))
    pipeline = load_pipeline(path)
    reports = run_subtasks(spark, pipeline, SUBTASKS, None, _counting(pipeline, event_schema(pipeline)))
    assert [(report.subtask, report.events.read) for report in reports] == [(i, 0) for i in range(SUBTASKS)]


def test_an_error_of_a_task_reaches_the_driver_as_it_was_raised(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "parted.yaml"
    path.write_text(PIPELINE.format(key="number"))

    def damaged(subtask: int, _: int, _events: pa.Table) -> SubtaskReport:
        raise CorruptStateError(f"part {subtask} is short", kind="short-file", hint="statelib verify names it")

    with pytest.raises(CorruptStateError) as caught:
        run_subtasks(spark, load_pipeline(path), 1, None, damaged)
    assert (caught.value.message, caught.value.kind) == ("part 0 is short", "short-file")
    assert caught.value.hint == "statelib verify names it"


def _counting(pipeline: Pipeline, schema: pa.Schema) -> Callable[[int, int, pa.Table], SubtaskReport]:
    def task(subtask: int, _: int, events: pa.Table) -> SubtaskReport:
        assert events.schema == schema
        return SubtaskReport(
            subtask=subtask,
            key_group_range=subtask_range(subtask, SUBTASKS, pipeline.max_parallelism),
            keyed=None,
            files=(),
            statistics=(),
            events=EventCounts(len(events), 0, 0),
            restored_from="empty",
            sync_ms=0,
            async_ms=0,
        )

    return task
