"""Parquet files that Spark would read wrongly beside each other are refused before it reads them."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as t

from statelib.definition.pipeline import load_pipeline
from statelib.definition.source.parts import source_parts
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.spark.events import file_fields
from statelib.spark.events.absent_columns import check_files_read_by_spark

PIPELINE = """\
name: reading
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, number: {declared}}}{more}}}
key: [shop]
states: {{seen: {{kind: value, value: {{agg: count}}}}}}
backend: heap
"""
LOCAL, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")


def check(
    root: Path,
    columns: dict[str, pa.Array],
    taken: t.DataType,
    *,
    declared: str = "long",
    more: str = "",
    empty: Sequence[str] = (),
    **settings: str,
) -> None:
    """Check a file for each column ``number``, by its name. ``taken``: Spark's type of the column, which it has from
    the first file."""
    (root / "reading.yaml").write_text(PIPELINE.format(declared=declared, more=more))
    (part,) = source_parts(load_pipeline(root / "reading.yaml"), str(root), DataInterval(0, 86_400_000))
    for name, numbers in columns.items():
        pq.write_table(pa.table({"shop": ["a"] * len(numbers), "number": numbers}), root / f"{name}.parquet")
    frame: Any = SimpleNamespace(
        inputFiles=lambda: [f"file://{root}/{name}.parquet" for name in (*empty, *columns)],
        schema=t.StructType([t.StructField("number", taken)]),
        sparkSession=SimpleNamespace(conf=SimpleNamespace(get=lambda name: settings.get(name.split(".")[-2], "true"))),
    )
    check_files_read_by_spark(part, frame)


@pytest.mark.parametrize(
    ("other", "taken", "named"),
    [
        (pa.array([70_000], pa.int32()), t.ShortType(), "int, which Spark would read as smallint"),
        (pa.array([2**31], pa.uint32()), t.IntegerType(), "bigint, which Spark would read as int"),
        (pa.array([1], pa.date32()), t.IntegerType(), "date, which Spark would read as int"),
        (
            pa.array([datetime(2026, 1, 1, tzinfo=UTC)], INSTANT),
            t.LongType(),
            "timestamp, which Spark would read as bigint",
        ),
        (
            pa.array([datetime(2026, 1, 1)], LOCAL),
            t.TimestampType(),
            "timestamp_ntz, which Spark would read as timestamp",
        ),
    ],
)
def test_a_file_whose_numbers_spark_would_misread_is_refused(
    tmp_path: Path, other: pa.Array, taken: t.DataType, named: str
) -> None:
    with pytest.raises(InvalidRequestError, match=rf"/b\.parquet: column number is {named}") as caught:
        check(tmp_path, {"a": pa.nulls(1), "b": other}, taken)
    assert caught.value.kind == "column-type"


def test_a_column_that_the_pipeline_file_declares_too_narrow_is_refused(tmp_path: Path) -> None:
    declared = ', file_schema: "shop STRING, number SMALLINT"'
    with pytest.raises(InvalidRequestError, match="number is int, which Spark would read as smallint"):
        check(tmp_path, {"a": pa.array([70_000], pa.int32())}, t.ShortType(), more=declared)


@pytest.mark.parametrize(
    ("other", "taken"),
    [
        (pa.array([1], pa.int16()), t.LongType()),
        (pa.array([1], pa.float32()), t.DoubleType()),
        (pa.array([1], pa.date32()), t.TimestampNTZType()),
        (pa.array(["a"]), t.BinaryType()),
        (pa.array(["a"]).dictionary_encode(), t.StringType()),
        (pa.array([[1]]), t.LongType()),
    ],
)
def test_files_that_spark_reads_well_or_refuses_itself_are_left_to_it(
    tmp_path: Path, other: pa.Array, taken: t.DataType
) -> None:
    check(tmp_path, {"a": pa.nulls(1), "b": other}, taken)


CHANGES = pa.array([{"before": {"id": 1, "at": 2}, "after": {"id": 1, "at": 2}}])
ID_OF_AFTER = '{expr: "element_at(number, 1).after.id", type: long}'


def in_lists(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values)


def renamed(field: str) -> pa.Array:
    """Return changes in which a field of ``after`` has another name."""
    after = {"id": 1, "at": 2, "new": 3}
    del after[field]
    return pa.array([{"before": {"id": 1, "at": 2}, "after": after}])


def test_a_file_without_a_used_field_of_a_struct_is_refused(tmp_path: Path) -> None:
    files = {"a": in_lists(CHANGES), "b": in_lists(renamed("id"))}
    refusal = r"/b\.parquet has no column number\[\]\.after\.id; it has number\[\]\.after\.at, number\[\]\.after\.new"
    with pytest.raises(InvalidRequestError, match=refusal) as caught:
        check(tmp_path, files, t.LongType(), declared=ID_OF_AFTER)
    assert caught.value.kind == "missing-column"


def test_a_struct_of_which_no_field_is_named_is_used_as_a_whole(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match=r"/a\.parquet has no column number\.after\.new"):
        check(tmp_path, {"a": CHANGES, "b": renamed("at")}, t.LongType(), declared='{expr: "hash(number)", type: long}')


@pytest.mark.parametrize("whole", ["to_json(number)", "number", "hash(`number`, number.after.id)"])
def test_a_struct_that_is_read_somewhere_is_used_as_a_whole_beside_one_of_its_fields(
    tmp_path: Path, whole: str
) -> None:
    more = f", where: 'number.after.id > 0 AND {whole} IS NOT NULL AND after.at > 0'" if "(" in whole else ""
    declared = '"row<id: long, at: long>"' if whole == "number" else '{expr: "number.after.id", type: long}'
    with pytest.raises(InvalidRequestError, match=r"/a\.parquet has no column number\.after\.new"):
        check(tmp_path, {"a": CHANGES, "b": renamed("at")}, t.LongType(), declared=declared, more=more)


def test_a_struct_of_which_only_fields_are_read_may_differ_in_others(tmp_path: Path) -> None:
    more = ", where: 'number IS NOT NULL AND `number`.after IS NOT NULL'"
    declared = '{expr: "number.after.id", type: long}'
    check(tmp_path, {"a": CHANGES, "b": renamed("at")}, t.LongType(), declared=declared, more=more)


def test_names_in_backticks_are_used(tmp_path: Path) -> None:
    price, renamed_price = pa.array([{"unit-price": 2, "x": 1}]), pa.array([{"unit_price": 2, "x": 1}])
    declared = '{expr: "number.`unit-price` * number.x", type: long}'
    with pytest.raises(InvalidRequestError, match=r"/b\.parquet has no column number\.unit-price"):
        check(tmp_path, {"a": price, "b": renamed_price}, t.LongType(), declared=declared)


def test_a_file_without_content_does_not_keep_the_others_from_being_compared(tmp_path: Path) -> None:
    (tmp_path / "0.parquet").touch()
    with pytest.raises(InvalidRequestError, match="number is int, which Spark would read as smallint"):
        check(tmp_path, {"a": pa.nulls(1), "b": pa.array([70_000], pa.int32())}, t.ShortType(), empty=["0"])


@pytest.mark.parametrize(
    "other", [in_lists(renamed("at")), in_lists(pa.array([{"after": {"id": 1}}])), pa.nulls(1), in_lists(pa.nulls(1))]
)
def test_fields_that_are_not_used_and_structs_of_nulls_alone_may_differ(tmp_path: Path, other: pa.Array) -> None:
    check(tmp_path, {"a": in_lists(CHANGES), "b": other}, t.LongType(), declared=ID_OF_AFTER)


@pytest.mark.parametrize(
    ("numbers", "taken", "named"),
    [
        (pa.array([[70_000]], pa.list_(pa.int32())), t.ArrayType(t.ShortType()), r"number\[\] is int"),
        (
            pa.array([{"id": 70_000}], pa.struct([("id", pa.int32())])),
            t.StructType([t.StructField("ID", t.ShortType())]),
            r"number\.id is int",
        ),
        (
            pa.array([[("a", 70_000)]], pa.map_(pa.string(), pa.int32())),
            t.MapType(t.StringType(), t.ShortType()),
            r"number\[value\] is int",
        ),
    ],
)
def test_a_file_whose_inner_numbers_spark_would_misread_is_refused(
    tmp_path: Path, numbers: pa.Array, taken: t.DataType, named: str
) -> None:
    with pytest.raises(InvalidRequestError, match=rf"column {named}, which Spark would read as smallint") as caught:
        check(tmp_path, {"a": pa.nulls(1), "b": numbers}, taken)
    assert caught.value.kind == "column-type"


def test_a_column_that_the_path_has_too_is_not_read_from_the_files(tmp_path: Path) -> None:
    (tmp_path / "number=1").mkdir()
    check(tmp_path, {"number=1/a": pa.array([1]), "number=1/b": pa.array([1])}, t.IntegerType())


def test_local_times_are_instants_if_spark_is_set_so(tmp_path: Path) -> None:
    local = pa.array([datetime(2026, 1, 1)], LOCAL)
    check(tmp_path, {"a": pa.nulls(1), "b": local}, t.TimestampType(), inferTimestampNTZ="false")


def test_objects_are_compared_under_the_name_of_their_scheme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_fields, "open_file", lambda path: path.replace("s3://bucket", str(tmp_path)))
    frame: Any = SimpleNamespace(inputFiles=lambda: [f"s3a://bucket/{name}%20x.parquet" for name in "ab"])
    (tmp_path / "reading.yaml").write_text(PIPELINE.format(declared="long", more=""))
    (part,) = source_parts(load_pipeline(tmp_path / "reading.yaml"), "s3a://bucket", DataInterval(0, 86_400_000))
    pq.write_table(pa.table({"shop": ["a"]}), tmp_path / "a x.parquet")
    pq.write_table(pa.table({"store": ["a"]}), tmp_path / "b x.parquet")
    with pytest.raises(InvalidRequestError, match=r"s3://bucket/b x\.parquet has no column shop"):
        check_files_read_by_spark(part, frame)
