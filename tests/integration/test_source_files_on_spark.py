"""Subtasks that read Parquet files by themselves get the rows that Spark reads, whichever program wrote the files.
Files that they cannot read are left to Spark."""

import logging
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from statelib.definition.columns import event_schema
from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import DataInterval
from statelib.spark.events import source
from statelib.spark.events.source_files import own_events

INTERVAL, SOURCE = DataInterval(0, 86_400_000), "1970-01-01"
COLUMNS = {
    "boolean": "f", "byte": "b", "short": "h", "int": "i", "long": "n", "float": "r", "double": "d", "string": "s",
    "bytes": "x", "date": "day", "datetime": "local", "instant": "at",
}  # fmt: skip
TYPES = {
    "f": pa.bool_(), "b": pa.int8(), "h": pa.int16(), "i": pa.int32(), "n": pa.int64(), "r": pa.float32(),
    "d": pa.float64(), "s": pa.string(), "x": pa.binary(), "day": pa.date32(), "local": pa.timestamp("us"),
    "at": pa.timestamp("us", "UTC"),
}  # fmt: skip
ROWS = [
    (True, 1, -300, 70_000, 2**62, 1.5, -0.0, "Zürich", b"\x00\xff", date(2024, 2, 29), datetime(2024, 3, 31, 2, 30),
     datetime(2024, 3, 31, 2, 30, 0, 1, UTC)),
    (False, -128, 32767, -(2**31), -(2**63), float("inf"), float("-inf"), "", b"", date(1, 1, 1), datetime(1678, 1, 1),
     datetime(1678, 1, 1, tzinfo=UTC)),
    (None,) * 12,
    (True, 127, 0, 0, 0, 0.1, 1e300, "a" * 1000, bytes(1000), date(1582, 10, 10), datetime(1883, 11, 18, 12),
     datetime(1883, 11, 18, 12, tzinfo=UTC)),
    (True, 0, 0, 0, 7, 0.0, 5e-324, "\U0001f40d", b"1", date(9999, 12, 31), datetime(2262, 1, 1, 23, 59, 59, 999999),
     datetime(2262, 1, 1, 23, 59, 59, 999999, UTC)),
]  # fmt: skip
DECLARED = {column: kind for kind, column in COLUMNS.items()}
WIDER = {"b": "short", "h": "long", "i": "double", "r": "double"}


def events(types: dict[str, pa.DataType] = TYPES) -> pa.Table:
    columns = zip(*ROWS, strict=True)
    return pa.table({n: pa.array(v, TYPES[n]).cast(t) for (n, t), v in zip(types.items(), columns, strict=True)})


def new_pipeline(root: Path, declared: dict[str, str], more: str = "") -> Pipeline:
    """Return a pipeline whose source is the directory :data:`SOURCE`, unless ``more`` changes it."""
    path = root / "reading.yaml"
    columns = ", ".join(f"{name}: {kind}" for name, kind in declared.items())
    path.write_text(
        f"name: reading\nsource: {{path: '{{data}}/{{start:%Y-%m-%d}}{more}', columns: {{{columns}}}}}\nkey: [n]\n"
        "states: {seen: {kind: value, value: {agg: count}}}\non_null_key: drop\nbackend: heap\nparallelism: 2\n"
        "checkpoint: {strategy: canonical}\n"
    )
    return load_pipeline(path)


def frame(spark: SparkSession) -> DataFrame:
    """Return a DataFrame of the table. Spark would read local times of Arrow as instants."""
    return spark.createDataFrame(events()).withColumn("local", f.col("local").cast("timestamp_ntz"))


def read_by_spark(spark: SparkSession, pipeline: Pipeline, data: Path) -> pa.Table:
    table = source.read_interval(spark, pipeline, source.SourcePlaces(str(data), ""), INTERVAL).toArrow()
    return table.cast(event_schema(pipeline)).sort_by("n")


def read_by_subtasks(spark: SparkSession, pipeline: Pipeline, data: Path) -> pa.Table | None:
    files = source.files_of_interval(spark, pipeline, source.SourcePlaces(str(data), str(data)), INTERVAL, 2)
    if files is None:
        return None
    return pa.concat_tables([own_events(pipeline, files, subtask, 2) for subtask in (0, 1)]).sort_by("n")


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(events(), id="as declared"),
        pytest.param(events({**TYPES, "s": pa.large_string(), "x": pa.large_binary()}), id="large"),
        pytest.param(events({**TYPES, "at": pa.timestamp("us", "Europe/Berlin")}), id="of a time zone"),
        pytest.param(
            events().set_column(7, "s", events()["s"].dictionary_encode()).set_column(
                8, "x", events()["x"].dictionary_encode()
            ),
            id="dictionaries",
        ),
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"compression": "zstd", "data_page_version": "2.0", "row_group_size": 2}])
def test_subtasks_read_files_of_arrow_like_spark(
    spark: SparkSession, tmp_path: Path, table: pa.Table, options: dict[str, object]
) -> None:
    (tmp_path / SOURCE).mkdir()
    pq.write_table(table, tmp_path / SOURCE / "a.parquet", **options)
    pipeline = new_pipeline(tmp_path, DECLARED)
    assert read_by_subtasks(spark, pipeline, tmp_path) == read_by_spark(spark, pipeline, tmp_path)


@pytest.mark.parametrize("written_as", ["INT96", "TIMESTAMP_MICROS", "TIMESTAMP_MILLIS"])
def test_subtasks_read_files_of_spark_like_spark(spark: SparkSession, tmp_path: Path, written_as: str) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", written_as)
    try:
        frame(spark).repartition(3).write.parquet(str(tmp_path / SOURCE))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")
    pipeline = new_pipeline(tmp_path, DECLARED)
    table = read_by_subtasks(spark, pipeline, tmp_path)
    assert table is not None
    assert table == read_by_spark(spark, pipeline, tmp_path)
    assert len(table) == len(ROWS)


def test_narrower_columns_are_widened_like_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / SOURCE).mkdir()
    pq.write_table(events(), tmp_path / SOURCE / "a.parquet")
    pipeline = new_pipeline(tmp_path, DECLARED | WIDER)
    table = read_by_subtasks(spark, pipeline, tmp_path)
    assert table is not None
    assert table == read_by_spark(spark, pipeline, tmp_path)


@pytest.mark.parametrize("declared", ["decimal(18, 2)", "decimal(25, 6)", "decimal(38, 2)"])
@pytest.mark.parametrize("stored", [(4, 2), (10, 2), (18, 2), (3, 0)])
@pytest.mark.parametrize("writer", ["Arrow", "Arrow, as integers", "Spark"])
def test_decimals_are_read_like_in_spark(
    spark: SparkSession, tmp_path: Path, writer: str, stored: tuple[int, int], declared: str
) -> None:
    digits = 10 ** stored[0] - 1
    unscaled = [0, 1, -1, digits, -digits, None]
    values = [None if n is None else Decimal(n).scaleb(-stored[1]) for n in unscaled]
    table = pa.table({"n": pa.array(range(len(values))), "p": pa.array(values, pa.decimal128(*stored))})
    if writer == "Spark":
        spark.createDataFrame(table).repartition(1).write.parquet(str(tmp_path / SOURCE))
    else:
        (tmp_path / SOURCE).mkdir()
        as_integers = writer == "Arrow, as integers"
        pq.write_table(table, tmp_path / SOURCE / "a.parquet", store_decimal_as_integer=as_integers)
    pipeline = new_pipeline(tmp_path, {"n": "long", "p": f"'{declared}'"})
    read = read_by_subtasks(spark, pipeline, tmp_path)
    assert read is not None
    assert read["p"].to_pylist() == values
    assert read == read_by_spark(spark, pipeline, tmp_path)


def test_a_decimal_with_more_digits_than_declared_is_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / SOURCE).mkdir()
    table = pa.table({"n": pa.array([1]), "p": pa.array([Decimal("1.234")], pa.decimal128(18, 3))})
    pq.write_table(table, tmp_path / SOURCE / "a.parquet")
    pipeline = new_pipeline(tmp_path, {"n": "long", "p": "'decimal(18, 2)'"})
    assert read_by_subtasks(spark, pipeline, tmp_path) is None


@pytest.mark.parametrize("order", [["s", "S"], ["S", "s"]])
def test_columns_that_differ_only_in_capital_letters_are_refused(
    spark: SparkSession, tmp_path: Path, order: list[str]
) -> None:
    (tmp_path / SOURCE).mkdir()
    texts = {"s": pa.array(["declared"]), "S": pa.array(["another"])}
    pq.write_table(pa.table({"n": [1], **{name: texts[name] for name in order}}), tmp_path / SOURCE / "a.parquet")
    pipeline = new_pipeline(tmp_path, {"n": "long", "s": "string"})
    assert read_by_subtasks(spark, pipeline, tmp_path) is None
    with pytest.raises(Exception, match="COLUMN_ALREADY_EXISTS"):
        read_by_spark(spark, pipeline, tmp_path)


def test_files_in_the_old_calendar_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    try:
        frame(spark).write.parquet(str(tmp_path / SOURCE))
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    pipeline = new_pipeline(tmp_path, DECLARED)
    assert read_by_subtasks(spark, pipeline, tmp_path) is None
    table, stored = read_by_spark(spark, pipeline, tmp_path)["day"], pq.read_table(tmp_path / SOURCE)["day"]
    assert pc.min(table) == pa.scalar(date(1, 1, 1))
    assert pc.min(stored) != pc.min(table)


def other_file_system(spark: SparkSession) -> Callable[[], object]:
    """Return a function that undoes the change."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    before = hadoop.get("fs.defaultFS")
    hadoop.set("fs.defaultFS", "hdfs://nowhere:1")
    return lambda: hadoop.set("fs.defaultFS", before)


def other_setting(spark: SparkSession) -> Callable[[], object]:
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    return lambda: spark.conf.unset("spark.sql.files.ignoreCorruptFiles")


@pytest.mark.parametrize(
    ("make", "reason"),
    [(other_file_system, "is neither a path of this host nor in a bucket"), (other_setting, "ignoreCorruptFiles")],
)
def test_settings_that_change_how_spark_reads_leave_the_source_to_spark(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    make: Callable[[SparkSession], Callable[[], object]],
    reason: str,
) -> None:
    (tmp_path / SOURCE).mkdir()
    pq.write_table(events(), tmp_path / SOURCE / "a.parquet")
    pipeline = new_pipeline(tmp_path, DECLARED)
    assert read_by_subtasks(spark, pipeline, tmp_path) is not None
    undo = make(spark)
    caplog.set_level(logging.INFO, "statelib")
    try:
        assert source.files_of_interval(spark, pipeline, source.SourcePlaces(str(tmp_path), "/x"), INTERVAL, 2) is None
    finally:
        undo()
    assert reason in caplog.text


def test_other_formats_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    frame(spark).write.orc(str(tmp_path / SOURCE))
    pipeline = new_pipeline(tmp_path, DECLARED, "', format: 'orc")
    assert read_by_subtasks(spark, pipeline, tmp_path) is None
    assert len(read_by_spark(spark, pipeline, tmp_path)) == len(ROWS)


@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize(
    ("columns", "more"),
    [
        pytest.param({"s": "string"}, "', where: 'n >= 0", id="a plain column beside a condition"),
        pytest.param({}, "', where: 'upper(S) <> \"no\"", id="a column of a condition"),
        pytest.param({"upper": "{expr: upper(s), type: string}"}, "", id="a column of an expression"),
    ],
)
def test_a_file_without_a_column_that_spark_reads_is_refused_whatever_its_name(
    spark: SparkSession, tmp_path: Path, names: str, columns: dict[str, str], more: str
) -> None:
    (tmp_path / SOURCE).mkdir()
    for name, table in zip(names, (events(), events().rename_columns({"s": "text"})), strict=True):
        pq.write_table(table, tmp_path / SOURCE / f"{name} %.parquet")
    pipeline = new_pipeline(tmp_path, {"n": "long"} | columns, more)
    with pytest.raises(InvalidRequestError, match=rf"/{names[1]} %\.parquet has no column s; it has f, b") as caught:
        read_by_spark(spark, pipeline, tmp_path)
    assert caught.value.kind == "missing-column"


@pytest.mark.parametrize(
    "more",
    [
        pytest.param('\', where: \'n >= 0 AND lower("s") = "s"', id="a text and another column"),
        pytest.param("', where: 'n >= 0', file_schema: 'n BIGINT, s STRING", id="a schema"),
        pytest.param(
            "', where: 'n >= 0 AND (s IS NULL OR true)', options: {mergeSchema: 'true'}, format: 'parquet", id="merged"
        ),
    ],
)
def test_files_may_differ_in_columns_that_are_not_used_or_that_the_pipeline_file_lets_differ(
    spark: SparkSession, tmp_path: Path, more: str
) -> None:
    (tmp_path / SOURCE).mkdir()
    pq.write_table(events(), tmp_path / SOURCE / "a.parquet")
    pq.write_table(events().drop_columns("s"), tmp_path / SOURCE / "b.parquet")
    declared = {"n": "long", "s": "string"} if "file_schema" in more else {"n": "long"}
    assert len(read_by_spark(spark, new_pipeline(tmp_path, declared, more), tmp_path)) == 6
