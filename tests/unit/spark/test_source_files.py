"""Sources that subtasks read by themselves: which they are, and that each event has one reader."""

import pickle
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import obstore
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store

from statelib.definition.columns import event_schema
from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.errors import InvalidRequestError, RetryableError, UnsupportedError
from statelib.functions.change_logs.changes import CHANGE
from statelib.spark.events.source_files import MOST_FILES, READERS, ROWS, own_events, source_files
from statelib.testing.local_run import LocalRun
from tests.support.s3_endpoint import S3Endpoint

PIPELINE = """\
name: reading
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, number: long, at: instant}}}}
key: [{key}]
states: {{seen: {{kind: value, value: {{agg: count}}}}}}
on_null_key: drop
backend: heap
parallelism: 1
checkpoint: {{strategy: canonical}}
"""
REFUNDS = '  refunds: {path: "{data}/{start}-{end}", columns: {shop: string, why: string}}\n'
INSTANT = pa.timestamp("us", "UTC")


def new_pipeline(root: Path, key: str = "shop") -> Pipeline:
    path = root / "reading.yaml"
    path.write_text(PIPELINE.format(key=key))
    return load_pipeline(path)


def events(rows: int = 1000, first: int = 0) -> pa.Table:
    """Return events, of which every 50th has no shop and every 60th no number."""
    numbers = np.arange(first, first + rows)
    return pa.table(
        {
            "shop": pa.array([f"shop-{n % 90}" for n in numbers], pa.string(), mask=numbers % 50 == 0),
            "number": pa.array(numbers, mask=numbers % 60 == 0),
            "at": pa.array(numbers, INSTANT),
        }
    )


def source(root: Path, **files: pa.Table) -> str:
    directory = root / "source"
    directory.mkdir(exist_ok=True)
    for name, table in files.items():
        pq.write_table(table, directory / f"{name}.parquet", row_group_size=300)
    return str(directory)


@pytest.mark.parametrize(("year", "text"), [(9999, "9999-12-31"), (1, "0001-12-31")])
def test_a_time_that_no_column_can_hold_is_named(tmp_path: Path, year: int, text: str) -> None:
    distant = events(3).set_column(2, "at", pa.array([0, datetime(year, 12, 31, tzinfo=UTC), None], INSTANT))
    location, pipeline = source(tmp_path, a=distant), new_pipeline(tmp_path)
    sources = source_files(pipeline, {"source": [location]}, 1)
    assert sources is not None
    with pytest.raises(UnsupportedError, match=f"column at: expected times from 1677.* to 2262.*, found {text}"):
        own_events(pipeline, sources, 0, 1)


@pytest.mark.parametrize("parallelism", [1, 2, 5])
@pytest.mark.parametrize("key", ["shop", "number", "shop, number"])
def test_each_event_is_read_by_exactly_one_subtask(tmp_path: Path, key: str, parallelism: int) -> None:
    location, pipeline = source(tmp_path, a=events(), b=events(500, 1000)), new_pipeline(tmp_path, key)
    sources = source_files(pipeline, {"source": [location]}, parallelism)
    assert sources is not None
    assert sources.rows == 1500
    sources = pickle.loads(pickle.dumps(sources))
    parts = [own_events(pipeline, sources, subtask, parallelism) for subtask in range(parallelism)]
    assert all(part.schema == event_schema(pipeline) for part in parts)
    assert parallelism == 1 or all(0 < len(part) < 1500 for part in parts)
    assert pa.concat_tables(parts).sort_by("at") == events(1500).sort_by("at").cast(event_schema(pipeline))


def test_events_without_a_key_are_read_by_the_first_subtask(tmp_path: Path) -> None:
    location, pipeline = source(tmp_path, a=events()), new_pipeline(tmp_path)
    sources = source_files(pipeline, {"source": [location]}, 3)
    assert sources is not None
    assert [own_events(pipeline, sources, subtask, 3)["shop"].null_count for subtask in range(3)] == [20, 0, 0]


def test_files_that_spark_ignores_are_ignored(tmp_path: Path) -> None:
    location, pipeline = source(tmp_path, a=events()), new_pipeline(tmp_path)
    for name in ("_SUCCESS", ".a.parquet.crc", "b.parquet._COPYING_"):
        Path(location, name).write_text("no Parquet file")
    ends = ("", "/a.parquet", "/", "/*", "/*.parquet", "/?.p*t")
    for named in (f"file:{location}", f"file://{location}", *(f"{location}{end}" for end in ends)):
        sources = source_files(pipeline, {"source": [named]}, 2)
        assert sources is not None, named
        assert sources.rows == 1000


@pytest.mark.parametrize("ending", ["", "/*.parquet"])
def test_a_missing_directory_is_no_empty_one_for_its_marker(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "reading.yaml"
    path.write_text(PIPELINE.format(key="shop").replace("source: {", "source: {ready: {marker: _SUCCESS}, "))
    pipeline, location = load_pipeline(path), source(tmp_path)
    assert source_files(pipeline, {"source": [f"{location}-gone{ending}"]}, 1) is None
    sources = source_files(pipeline, {"source": [f"{location}{ending}"]}, 1)
    assert sources is not None
    assert sources.rows == 0


def in_bucket(root: Path, s3: S3Endpoint, bucket: str, scheme: str = "s3a") -> str:
    """Copy the source into a bucket, and return its URI there."""
    for file in Path(source(root, a=events(), b=events(500, 1000))).iterdir():
        s3.put_object(bucket, f"day/{file.name}", file.read_bytes())
    s3.put_object(bucket, "day/_SUCCESS", b"")
    return f"{scheme}://{bucket}/day"


@pytest.mark.usefixtures("google_bucket")
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("scheme", ["s3a", "gs"])
def test_files_in_a_bucket_are_read_like_local_ones(
    tmp_path: Path, s3: S3Endpoint, bucket: str, parallelism: int, scheme: str
) -> None:
    location, pipeline = in_bucket(tmp_path, s3, bucket, scheme), new_pipeline(tmp_path)
    sources = source_files(pipeline, {"source": [location]}, parallelism)
    assert sources is not None
    assert [file.path for file in sources.files] == [f"{scheme[:2]}://{bucket}/day/{name}.parquet" for name in "ab"]
    parts = [own_events(pipeline, pickle.loads(pickle.dumps(sources)), n, parallelism) for n in range(parallelism)]
    assert pa.concat_tables(parts).sort_by("at") == events(1500).sort_by("at").cast(event_schema(pipeline))
    for named, rows in (("a.parquet", 1000), ("a*", 1000), ("*", 1500), ("?.parquet", 1500)):
        some = source_files(pipeline, {"source": [f"{location}/{named}"]}, parallelism)
        assert some is not None
        assert some.rows == rows, named


def test_a_bucket_that_is_not_a_flat_directory_is_left_to_spark(tmp_path: Path, s3: S3Endpoint, bucket: str) -> None:
    location, pipeline = in_bucket(tmp_path, s3, bucket), new_pipeline(tmp_path)
    elsewhere = (f"s3a://absent-{bucket}/day", "gs://elsewhere/day")
    for other in (f"{location}/c*", f"{location[:-1]}*/a.parquet", f"{location}/absent", *elsewhere):
        assert source_files(pipeline, {"source": [other]}, 1) is None, other
    s3.put_object(bucket, "day/region=1/c.parquet", b"")
    for named in (location, f"{location}/*"):
        assert source_files(pipeline, {"source": [named]}, 1) is None, "a partition"
    assert source_files(pipeline, {"source": [f"{location}/*.parquet"]}, 1) is not None


def test_an_object_that_changes_or_disappears_fails_the_read(tmp_path: Path, s3: S3Endpoint, bucket: str) -> None:
    location, pipeline = in_bucket(tmp_path, s3, bucket), new_pipeline(tmp_path)
    sources = source_files(pipeline, {"source": [location]}, 1)
    assert sources is not None
    pq.write_table(events(7), tmp_path / "c.parquet")
    s3.put_object(bucket, "day/b.parquet", (tmp_path / "c.parquet").read_bytes())
    with pytest.raises(RetryableError, match="was written again"):
        own_events(pipeline, sources, 0, 1)
    obstore.delete(S3Store(bucket, endpoint=s3.direct_url, client_options={"allow_http": True}), "day/b.parquet")
    with pytest.raises(RetryableError, match=r"cannot be read: .*no such object"):
        own_events(pipeline, sources, 0, 1)


def test_files_without_events_are_read(tmp_path: Path) -> None:
    location, pipeline = source(tmp_path, a=events(0)), new_pipeline(tmp_path)
    sources = source_files(pipeline, {"source": [location]}, 2)
    assert sources is not None
    assert sources.rows == 0
    assert own_events(pipeline, sources, 1, 2) == event_schema(pipeline).empty_table()


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda at: f"{at}/[a].parquet", id="a class of characters"),
        pytest.param(lambda at: f"{at}/{{a,b}}.parquet", id="alternatives"),
        pytest.param(lambda at: f"{at[:-1]}*", id="a pattern of directories"),
        pytest.param(lambda at: f"{at[:-1]}?/a.parquet", id="a pattern within the path"),
        pytest.param(lambda at: f"{at}/b*", id="a pattern without files"),
        pytest.param(lambda at: (Path(at, "a.d").mkdir(), f"{at}/a*")[1], id="a pattern of a directory"),
        pytest.param(lambda at: f"file:{at}/a%2Eparquet", id="escaped"),
        pytest.param(lambda _: "source", id="relative"),
        pytest.param(lambda at: f"file://host{at}", id="of another host"),
        pytest.param(lambda at: f"hdfs:{at}", id="of another file system"),
        pytest.param(lambda at: f"{at}/gone", id="not there"),
        pytest.param(lambda at: (Path(at, "day=1").mkdir(), at)[1], id="partitions"),
        pytest.param(lambda at: (Path(at, "_spark_metadata").mkdir(), at)[1], id="a sink's log of its files"),
        pytest.param(lambda at: (Path(at, "b.txt").write_text("text"), at)[1], id="another file"),
        pytest.param(lambda at: (Path(at, "b.parquet").touch(), at)[1], id="an empty file"),
        pytest.param(lambda at: (Path(at, "a.parquet").rename(f"{at}/_a"), at)[1], id="no file"),
    ],
)
def test_sources_other_than_plain_directories_are_left_to_spark(tmp_path: Path, make: "pytest.FixtureRequest") -> None:
    assert source_files(new_pipeline(tmp_path), {"source": [make(source(tmp_path, a=events()))]}, 2) is None


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(events().rename_columns(["shop", "Number", "at"]), id="of another case"),
        pytest.param(events().set_column(1, "number", events()["number"].cast(pa.float64())), id="another type"),
        pytest.param(events().set_column(1, "number", events()["number"].cast(pa.uint64())), id="without sign"),
        pytest.param(events().set_column(2, "at", events()["at"].cast(pa.timestamp("us"))), id="local times"),
        pytest.param(events().set_column(2, "at", events()["at"].cast(pa.timestamp("ns", "UTC"))), id="nanoseconds"),
        pytest.param(events().replace_schema_metadata({"org.apache.spark.version": "2.4.8"}), id="Spark 2"),
        pytest.param(events().replace_schema_metadata({"org.apache.spark.legacyDateTime": ""}), id="the old calendar"),
    ],
)
def test_one_file_with_an_unsupported_column_leaves_all_files_to_spark(tmp_path: Path, other: pa.Table) -> None:
    pipeline = new_pipeline(tmp_path)
    assert source_files(pipeline, {"source": [source(tmp_path, a=events())]}, 2) is not None
    assert source_files(pipeline, {"source": [source(tmp_path, a=events(), b=other)]}, 2) is None


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_a_file_without_a_column_is_refused_whatever_its_name(tmp_path: Path, names: str) -> None:
    other = events().rename_columns(["shop", "count", "at"])
    location = source(tmp_path, **dict(zip(names, (events(), other), strict=True)))
    with pytest.raises(InvalidRequestError, match=f"{names[1]}.parquet has no column number; it has shop, count, at"):
        source_files(new_pipeline(tmp_path), {"source": [location]}, 2)


def test_many_subtasks_leave_a_large_source_to_spark(tmp_path: Path) -> None:
    rows = ROWS // (READERS + 1)
    table = pa.table({"shop": pa.nulls(rows, pa.string()), "number": pa.nulls(rows, pa.int64())})
    table = table.append_column("at", pa.nulls(rows, INSTANT))
    location, pipeline = source(tmp_path, a=table), new_pipeline(tmp_path)
    assert source_files(pipeline, {"source": [location]}, READERS + 1) is not None
    assert source_files(pipeline, {"source": [location]}, READERS + 2) is None
    location = source(tmp_path, a=table, b=table)
    assert source_files(pipeline, {"source": [location]}, READERS) is not None
    assert source_files(pipeline, {"source": [location]}, READERS + 1) is None


def test_a_source_of_many_files_is_left_to_spark(tmp_path: Path) -> None:
    location, pipeline = source(tmp_path, a=events(1)), new_pipeline(tmp_path)
    for number in range(MOST_FILES - 1):
        Path(location, f"a{number}.parquet").hardlink_to(f"{location}/a.parquet")
    assert source_files(pipeline, {"source": [location]}, 2) is not None
    Path(location, "one-more.parquet").hardlink_to(f"{location}/a.parquet")
    assert source_files(pipeline, {"source": [location]}, 2) is None


def test_a_file_that_was_replaced_meanwhile_is_refused(tmp_path: Path) -> None:
    location, pipeline = source(tmp_path, a=events()), new_pipeline(tmp_path)
    sources = source_files(pipeline, {"source": [location]}, 2)
    assert sources is not None
    source(tmp_path, a=events(1000, 1))
    with pytest.raises(RetryableError, match=r"a\.parquet was written again") as caught:
        own_events(pipeline, sources, 0, 2)
    assert caught.value.kind == "source-changed"


@pytest.mark.parametrize("how", ["gone", "cut", "damaged"])
def test_the_error_names_a_file_that_cannot_be_read(tmp_path: Path, how: str) -> None:
    location, pipeline = source(tmp_path, a=events()), new_pipeline(tmp_path)
    sources = source_files(pipeline, {"source": [location]}, 2)
    assert sources is not None
    path = Path(location, "a.parquet")
    data = path.read_bytes()
    path.unlink()
    if how == "cut":
        path.write_bytes(data[:-20])
    if how == "damaged":
        path.write_bytes(data[:4] + bytes(2000) + data[2004:])
    with pytest.raises(RetryableError, match=r"a\.parquet cannot be read") as caught:
        own_events(pipeline, sources, 0, 2)
    assert caught.value.kind == "source-unreadable"


def test_files_of_several_sources_are_read_with_nulls_for_the_columns_of_the_others(tmp_path: Path) -> None:
    text = PIPELINE.format(key="shop").replace("source: {", "sources:\n  orders: {")
    path = tmp_path / "reading.yaml"
    path.write_text(text.replace("\nkey:", f"\n{REFUNDS}key:"))
    pipeline = load_pipeline(path)
    reasons = pa.table({"shop": ["shop-1", "shop-2"], "why": ["broken", None]})
    (tmp_path / "refunds").mkdir()
    locations = {
        "sources.orders": [source(tmp_path, a=events(200))],
        "sources.refunds": [source(tmp_path / "refunds", a=reasons)],
    }
    files = source_files(pipeline, locations, 2)
    assert files is not None
    assert files.sources == ("sources.orders", "sources.refunds")
    table = pa.concat_tables([own_events(pipeline, files, subtask, 2) for subtask in (0, 1)])
    assert table.schema == event_schema(pipeline)
    own = [row for row in table.to_pylist() if row["at"] is None]
    assert sorted(own, key=lambda row: row["shop"]) == [
        {"shop": "shop-1", "number": None, "at": None, "why": "broken"},
        {"shop": "shop-2", "number": None, "at": None, "why": None},
    ]
    assert len(table) == 202

    locations["sources.refunds"] = ["s3://bucket/refunds"]
    only_orders = source_files(pipeline, locations, 2)
    assert only_orders is not None
    assert (only_orders.sources, only_orders.rows) == (("sources.orders",), 200)


def test_events_are_applied_if_only_another_source_deletes(tmp_path: Path) -> None:
    text = PIPELINE.format(key="shop").replace("source: {", "sources:\n  orders: {")
    refunds = REFUNDS.replace("columns:", "delete_when: gone, columns:")
    path = tmp_path / "reading.yaml"
    path.write_text(text.replace("\nkey:", f"\n{refunds}order_by: shop\nkey:"))
    pipeline = load_pipeline(path)
    files = source_files(pipeline, {"sources.orders": [source(tmp_path, a=events(200))]}, 1)
    assert files is not None
    table = own_events(pipeline, files, 0, 1)
    assert table.schema == event_schema(pipeline)
    assert table[CHANGE].null_count == 200
    run = LocalRun(pipeline)
    assert run.apply(table.filter(pc.is_valid(table["shop"]))) == 0
    assert len(run.state("seen")) == len(set(events(200)["shop"].to_pylist()) - {None})
