"""A pipeline that begins with a table that exists has the state of one that applied all events before it."""

import random
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.imports.seed import SeedTable, seed_from_table
from statelib.spark.imports.seed_columns import STATE, map_table
from tests.support.worlds import checkpoint_of, day, new_deployment

PIPELINE = """\
name: {name}
source:
  path: "{{data}}/{{start}}-{{end}}"
  columns: {{customer: string, shop: int, item: string, amount: long, price: double, number: int, good: boolean,
    at: datetime}}
key: [customer, shop]
states:
  totals:
    kind: value
    fields:
      orders: {{agg: count}}
      priced: {{agg: count, of: price}}
      amount: {{agg: sum, of: amount}}
      paid: {{agg: sum, of: price}}
      least: {{agg: min, of: amount}}
      mean: {{agg: avg, of: amount}}
      spread: {{agg: variance, of: number}}
      first_item: {{agg: first, of: item, by: [at]}}
      newest: {{agg: last, of: [item, amount], by: [at]}}
      all_good: {{agg: bool_and, of: good}}
      bins: {{agg: histogram, of: amount, bounds: [10, 50]}}
      best: {{agg: top, of: item, by: [amount, at], n: 2}}
      distinct_items: {{agg: approx_distinct, of: item}}
      amounts: {{agg: approx_quantiles, of: amount}}
      numbers: {{agg: bitmap, of: number}}
  recent: {{kind: value, ttl: 400d, fields: {{n: {{agg: count}}}}}}
  greatest: {{kind: reducing, value: {{agg: max, of: amount}}}}
  items: {{kind: list, value: {{agg: distinct, of: item}}}}
  per_item: {{kind: map, user_key: item, fields: {{n: {{agg: count}}, sold: {{agg: sum, of: amount}}}}}}
backend: {backend}
parallelism: 2
"""
TABLE = """
WITH one AS (
  SELECT customer, shop, count(*) AS orders, count(price) AS priced, sum(amount) AS amount, sum(price) AS paid,
    min(amount) AS least, count(amount) AS amounts_counted, avg(number) AS number_mean, count(number) AS numbered,
    CAST(var_pop(number) * count(number) AS double) AS squares, min_by(item, at) AS first_item, min(at) AS first_at,
    max_by(struct(item, amount), at) AS newest, max(at) AS last_at, bool_and(good) AS all_good,
    array(count_if(amount <= 10), count_if(amount > 10 AND amount <= 50), count_if(amount > 50)) AS bins,
    array_agg(named_struct('value', item, 'by_amount', amount, 'by_at', at)) FILTER (WHERE amount IS NOT NULL) AS best,
    hll_sketch_agg(item) AS distinct_items,
    kll_sketch_agg_double(CAST(amount AS double)) AS amounts, bitmap_construct_agg(number) AS numbers,
    max(amount) AS greatest, collect_list(item) AS items
  FROM events GROUP BY customer, shop),
many AS (
  SELECT customer, shop, map_from_entries(array_agg(struct(item, struct(n, sold)))) AS per_item FROM (
    SELECT customer, shop, item, count(*) AS n, sum(amount) AS sold FROM events GROUP BY customer, shop, item)
  GROUP BY customer, shop)
SELECT * FROM one JOIN many USING (customer, shop)
"""
MAPPING = {
    "mean.sum": "amount", "mean.count": "amounts_counted",
    "spread.mean": "number_mean", "spread.squares": "squares", "spread.count": "numbered",
    "first_item.value": "first_item", "first_item.by_at": "first_at",
    "newest.value": "newest", "newest.by_at": "last_at",
    "recent.n": "orders",
}  # fmt: skip


def events(chance: random.Random, number: int, count: int = 400) -> pa.Table:
    """Return events of one day. Numbers are whole or equal, so that sums and deviations of doubles are exact."""
    start = datetime(2013, 1, number)
    rows = [
        {
            "customer": f"customer {chance.randrange(20)}",
            "shop": chance.randrange(3),
            "item": chance.choice("abcdefé"),
            "amount": chance.choice([None, chance.randrange(100)]),
            "price": chance.choice([None, float(chance.randrange(9))]),
            "number": 8,
            "good": chance.choice([None, True, True, False]),
            "at": start + timedelta(seconds=second),
        }
        for second in range(count)
    ]
    types = pa.schema(
        [("customer", pa.string()), ("shop", pa.int32()), ("item", pa.string()), ("amount", pa.int64()),
         ("price", pa.float64()), ("number", pa.int32()), ("good", pa.bool_()), ("at", pa.timestamp("us"))]
    )  # fmt: skip
    return pa.Table.from_pylist(rows, types)


@pytest.fixture(params=["heap", "rocksdb"])
def deployment(request: pytest.FixtureRequest, tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    for name in ("replayed", "seeded"):
        text = PIPELINE.format(name=name, backend=request.param)
        (tmp_path / "pipelines" / f"{name}.yaml").write_text(text)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


def view(spark: SparkSession, deployment: Deployment, parts: list[pa.Table], sql: str = TABLE) -> None:
    """Make the table ``totals`` of the events of some days."""
    root = Path(deployment.data)
    pq.write_table(pa.concat_tables(parts), root / "events.parquet")
    spark.read.parquet(str(root / "events.parquet")).createOrReplaceTempView("events")
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.sql(sql).write.parquet(str(root / "totals"))
    spark.read.parquet(str(root / "totals")).createOrReplaceTempView("totals")


def seed(
    spark: SparkSession, deployment: Deployment, table: SeedTable, until_ms: int = day(3).start_ms
) -> tuple[CheckpointRecord, bool]:
    pipeline = deployment.pipeline("seeded")
    return seed_from_table(spark, deployment, pipeline, table, until_ms, owner="test")


def head(deployment: Deployment, name: str) -> CheckpointRecord:
    number = deployment.catalog().head(PipelineName(name)).head
    assert number is not None
    return deployment.catalog().get(PipelineName(name), number)


def assert_same_state(deployment: Deployment) -> None:
    one, other = (deployment.open(head(deployment, name)) for name in ("replayed", "seeded"))
    assert one.manifest is not None
    assert other.manifest is not None
    contents = zip(one.manifest.schema.states, one.manifest.statistics, other.manifest.statistics, strict=True)
    for state, left, right in contents:
        rows = [] if left.same_content(right) else [each.to_arrow(state.name).to_pylist() for each in (one, other)]
        for replayed, seeded in zip(*(sorted(part, key=str) for part in rows), strict=True) if rows else ():
            for name in replayed["value"] if isinstance(replayed["value"], dict) else ():
                assert replayed["value"][name] == seeded["value"][name], f"{state.name}.{name}"
            assert replayed == seeded, state.name
        assert left.same_content(right), state.name
    assert not verify(other).problems


def test_files_with_other_columns_or_types_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    text = "name: seeded\nsource: {path: 'none/{start}', columns: {customer: string, amount: long}}\nkey: customer\n"
    states = "states: {total: {kind: value, value: {agg: sum, of: amount}}}\nbackend: heap\n"
    (tmp_path / "pipelines" / "seeded.yaml").write_text(text + states)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    (table := tmp_path / "table").mkdir()
    shorts = pa.table({"customer": ["a"], "total": pa.array([1], pa.int16()), "unused": [1]})
    pq.write_table(shorts, table / "1.parquet")
    pq.write_table(pa.table({"customer": ["b"], "total": pa.array([70_000], pa.int64())}), table / "2.parquet")
    with pytest.raises(InvalidRequestError, match="column total is bigint, which Spark would read as smallint"):
        seed(spark, deployment, SeedTable(str(table), "parquet"))
    pq.write_table(pa.table({"customer": ["b"], "Total_": pa.array([2], pa.int16())}), table / "2.parquet")
    with pytest.raises(InvalidRequestError, match=r"2\.parquet has no column total; it has customer, Total_"):
        seed(spark, deployment, SeedTable(str(table), "parquet"))
    pq.write_table(shorts.set_column(0, "customer", [["b"]]).drop_columns(["unused"]), table / "2.parquet")
    record, _ = seed(spark, deployment, SeedTable(str(table), "parquet"))
    assert deployment.open(record).to_arrow("total").num_rows == 2


def test_dots_in_names_divide_no_name(spark: SparkSession) -> None:
    columns = {"a.b": "string", "x": "long", "n.m": "long"}
    fields = {"m": "sum", "n.m": "max", "n": "avg"}
    aggregates: dict[str, dict[str, object]] = {name: {"agg": agg, "of": "x"} for name, agg in fields.items()}
    aggregates["best"] = {"agg": "top", "of": "x", "by": "n.m", "n": 1}
    pipeline = Pipeline.model_validate(
        {"name": "p", "source": {"path": "{start}", "columns": columns}, "key": "a.b", "backend": "heap",
         "states": {"s.t": {"kind": "value", "fields": aggregates}}}
    )  # fmt: skip
    best = "array(struct(1 AS value, 2 AS `by_n.m`)) AS best"
    table = spark.sql(f"SELECT 'k' AS `a.b`, 5 AS m, 7 AS `n.m`, struct(12 AS sum, 3 AS count) AS n, {best}")
    value = map_table(table, pipeline, {}).frame.first()
    assert value is not None
    assert value.asDict(recursive=True) == {
        "a.b": "k",
        f"{STATE}s.t": {"m": 5, "n.m": 7, "n": {"sum": 12.0, "count": 3}, "best": [{"value": 1, "by_n.m": 2}]},
    }
    mapped = map_table(table, pipeline, {"n.m": "m + 1", "s.t.m": "`n.m`", "n.sum": "13", "n.count": "2"}).frame.first()
    assert mapped is not None
    assert mapped.asDict(recursive=True)[f"{STATE}s.t"] == {
        "m": 7, "n.m": 6, "n": {"sum": 13.0, "count": 2}, "best": [{"value": 1, "by_n.m": 2}]
    }  # fmt: skip
    with pytest.raises(InvalidRequestError, match=r"nothing fills s\.t\.m") as caught:
        map_table(table.drop("m"), pipeline, {})
    assert caught.value.hint.endswith("--without s.t")


def test_a_name_of_two_parts_is_refused(spark: SparkSession) -> None:
    states = {
        "s": {"kind": "value", "fields": {"n.m": {"agg": "count"}}},
        "s.n": {"kind": "value", "fields": {"m": {"agg": "count"}}},
    }
    source = {"path": "{start}", "columns": {"k": "string"}}
    pipeline = Pipeline.model_validate({"name": "p", "source": source, "key": "k", "states": states, "backend": "heap"})
    table = spark.sql("SELECT 'k' AS k, 1 AS `n.m`, 2 AS m")
    row = map_table(table, pipeline, {}).frame.first()
    assert row is not None
    assert [value.asDict() for value in row[1:]] == [{"n.m": 1}, {"m": 2}]
    with pytest.raises(InvalidRequestError, match=r"--map s\.n\.m=m: 2 parts of the key and the states have this name"):
        map_table(table, pipeline, {"s.n.m": "m"})


@pytest.mark.timeout(600)
def test_a_seed_and_later_days_make_the_state_of_all_days(spark: SparkSession, deployment: Deployment) -> None:
    chance = random.Random(24)
    days = [events(chance, number) for number in (1, 2, 3, 4)]
    for number in (1, 2):
        checkpoint_of(deployment, "replayed", number, days[number - 1])
    view(spark, deployment, days[:2])
    record, existed = seed(spark, deployment, SeedTable("totals", mapping=MAPPING))
    assert (record.checkpoint_id, record.state, record.base, existed) == (1, CheckpointState.COMPLETED, None, False)
    assert record.interval is not None
    assert record.interval.end_ms == day(3).start_ms
    assert_same_state(deployment)
    for number in (3, 4):
        for name in ("replayed", "seeded"):
            checkpoint_of(deployment, name, number, days[number - 1])
        assert_same_state(deployment)
    assert seed(spark, deployment, SeedTable("totals", mapping=MAPPING)) == (record, True)
    with pytest.raises(InvalidRequestError, match="begins before the end of the last applied one"):
        checkpoint_of(deployment, "seeded", 2, days[1])
