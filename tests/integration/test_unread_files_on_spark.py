"""A file of an interval that Spark would leave out without an error refuses the run."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.spark.events.source import SourcePlaces, read_interval
from statelib.spark.events.unread_files import check_all_files_are_read

DAY = "1970-01-01"
RECURSIVE = {"options": {"recursiveFileLookup": True}}


def shops(spark: SparkSession, root: Path, files: dict[str, str], **more: Any) -> list[str]:
    """Write a file with one event for each shop, and return the shops that a run reads."""
    for name, shop in files.items():
        path = root / DAY / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'{{"shop": "{shop}"}}\n' if shop else "")
    source = {"format": "json", "path": "{data}/{start:%Y-%m-%d}", "columns": {"shop": "string"}, **more}
    states = {"n": {"kind": "value", "value": {"agg": "count"}}}
    pipeline = Pipeline.model_validate(
        {"name": "p", "source": source, "key": "shop", "states": states, "backend": "heap"}
    )
    frame = read_interval(spark, pipeline, SourcePlaces(str(root), str(root)), DataInterval(0, 86_400_000))
    return sorted(row.shop for row in frame.collect())


@pytest.mark.parametrize(
    ("files", "more", "unread"),
    [
        ({"a.json": "a", "00/b.json": "b"}, {}, "1 of 2 files would not be read: 00/b.json"),
        ({"00/a.json": "a", "01/b.json": "b"}, {"on_missing": "empty"}, "2 of 2 files would not be read: 00/a.json"),
        ({"00/a.json": "a"}, {"ready": {"marker": "_SUCCESS"}}, "1 of 1 files would not be read"),
        ({"00/a.json": "a"}, {}, "1 of 1 files would not be read"),
        ({"late.json": "a", "h=1/b.json": "b"}, {}, "1 of 2 files would not be read: late.json; beside directories"),
    ],
)
def test_a_file_that_spark_leaves_out_is_refused(
    spark: SparkSession, tmp_path: Path, files: dict[str, str], more: dict[str, Any], unread: str
) -> None:
    with pytest.raises(InvalidRequestError, match=unread) as caught:
        shops(spark, tmp_path, files, **more)
    assert caught.value.kind == "unread-files"


@pytest.mark.parametrize(
    ("files", "more", "read"),
    [
        ({"a.json": "a", "00/b.json": "b"}, RECURSIVE, ["a", "b"]),
        ({"00/a.json": "a", "01/b.json": "b"}, {"path": "{data}/{start:%Y-%m-%d}/*"}, ["a", "b"]),
        ({"h=1/a.json": "a", "h=2/b.json": "b", "_SUCCESS": "", "empty": ""}, {}, ["a", "b"]),
        ({"a.json": "a", "_tmp/b.json": "b", ".c/d.json": "d"}, {}, ["a"]),
        ({"h=1/a.json": "a", "DONE": "no event"}, {"ready": {"marker": "DONE"}}, ["a"]),
        ({"a.json": "a", "old/b.txt": "b"}, {"options": {"pathGlobFilter": "*.json"}}, ["a"]),
        ({"a.json": "a", "old/b.json": "b"}, {"path": "{data}/{start:%Y-%m-%d}/a*"}, ["a"]),
    ],
)
def test_files_that_the_pipeline_file_lets_spark_read_or_leave_out_are_no_error(
    spark: SparkSession, tmp_path: Path, files: dict[str, str], more: dict[str, Any], read: list[str]
) -> None:
    assert shops(spark, tmp_path, files, **more) == read


def test_files_that_only_spark_can_list_are_compared_too(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("a b%20.json", "00/b.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    with pytest.raises(InvalidRequestError, match=r"source x: 1 of 2 files would not be read: 00/b\.json"):
        check_all_files_are_read(spark, "source x", str(tmp_path), {}, file_format="json")
    check_all_files_are_read(spark, "source x", f"{tmp_path}/absent", {}, file_format="json")
