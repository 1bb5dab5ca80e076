"""``statelib pipelines seed``: what it plans, refuses and registers."""

import dataclasses
import json
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

from statelib.cli.answers import ANSWERS
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import CheckpointState
from tests.integration.shop_cli import call, refused, said
from tests.integration.test_looking_changes_nothing import catalog_files, contents
from tests.support.worlds import new_deployment

PIPELINE = """\
name: {name}
schedule: {{cron: "@daily", start: 2026-01-01}}
source: {{path: "{{data}}/{{start:%Y-%m-%d}}.parquet", columns: {{customer: string, amount: long, at: instant}}}}
key: customer
states:
  totals: {{kind: value, fields: {{orders: {{agg: count}}, mean: {{agg: avg, of: amount}}}}}}
  {more}
backend: heap
parallelism: 2
"""
MEAN = ("--map", "mean.sum=amount", "--map", "mean.count=orders")


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Deployment:
    root = tmp_path_factory.mktemp("seeds")
    (root / "pipelines").mkdir()
    totals = pl.DataFrame(
        {"customer": ["a", "b", "c"], "orders": [2, 1, 0], "amount": [10, 3, 0], "mean": [5.0, 3.0, 0]}
    )
    totals.write_parquet(root / "totals.parquet")
    totals.write_csv(root / "totals.csv")
    (root / "nested" / "more").mkdir(parents=True)
    for directory in ("nested", "nested/more"):
        totals.write_parquet(root / directory / "totals.parquet")
    pl.concat([totals, totals[:2]]).write_parquet(root / "repeated.parquet")
    totals.with_columns(customer=pl.Series(["a", None, None])).write_parquet(root / "null.parquet")
    totals.with_columns(orders=pl.Series([2, None, 0])).write_parquet(root / "uncounted.parquet")
    large = pl.Series([Decimal(10) ** 20, Decimal(1), Decimal(0)], dtype=pl.Decimal(38, 0))
    totals.with_columns(orders=large).write_parquet(root / "large.parquet")
    events = pl.DataFrame({"customer": ["a", "d"], "amount": [4, 6]}).with_columns(
        at=pl.datetime(2026, 1, 5, time_zone="UTC")
    )
    events.write_parquet(root / "2026-01-05.parquet")
    deployment = new_deployment(root, root, root / "pipelines")
    define(deployment, "sales")
    return deployment


def define(deployment: Deployment, name: str, more: str = "") -> None:
    (Path(deployment.pipelines_directory) / f"{name}.yaml").write_text(PIPELINE.format(name=name, more=more))


def words(deployment: Deployment, file: str, *more: str, name: str = "sales") -> tuple[str, ...]:
    place = f"{deployment.data}/{file}"
    return ("pipelines", "seed", name, "--from", place, "--until", "2026-01-05", *more)


def test_a_table_becomes_the_head_and_the_next_run_adds_to_it(deployment: Deployment) -> None:
    define(deployment, "begun")
    csv = ("--format", "csv", "--option", "header=true", "--option", "inferSchema=true")
    command = words(deployment, "totals.csv", *csv, *MEAN, "--where", "orders > 0", name="begun")
    places = (Path(deployment.storage_root), Path(deployment.pipelines_directory))
    before = contents(*places), contents(*catalog_files(deployment))
    plan = json.loads(said(deployment, *command, "--dry-run", "--json"))
    assert plan["plan"]["mapping"]["totals.mean.sum"] == "amount"
    assert (plan["dry_run"], plan["checkpoint"]) == (True, None)
    assert (contents(*places), contents(*catalog_files(deployment))) == before

    result = call(deployment, *command)
    assert (result.exit_code, "not confirmed: nothing was changed" in result.stderr) == (2, True)
    answer = json.loads(said(deployment, *command, "--yes", "--json"))
    assert set(answer) == set(ANSWERS["pipelines seed"].keys)
    assert (answer["checkpoint"]["checkpoint_id"], answer["already_completed"]) == (1, False)
    assert "seeded from" in said(deployment, "inspect", "begun/1")
    assert "begun/1 is this seed already" in said(deployment, *command, "--yes")
    late = tuple("2126-01-05" if word == "2026-01-05" else word for word in command)
    assert "expected no time in the future, found 2126-01-05" in refused(deployment, *late, "--dry-run")
    assert "begun has state already" in refused(deployment, *words(deployment, "totals.parquet", name="begun"), "--yes")

    said(deployment, "run", "begun")
    question = "SELECT customer, orders, mean FROM totals ORDER BY customer"
    rows = json.loads(said(deployment, "query", "begun", question, "--json"))["rows"]
    assert rows == [["a", 3, 14 / 3], ["b", 1, 3.0], ["d", 1, 6.0]]
    assert "already_completed" in said(deployment, "run", "begun", "--start", "2026-01-05", "--json")
    assert call(deployment, "verify", "-p", "begun").exit_code == 0


@pytest.mark.parametrize(
    ("file", "more", "expected"),
    [
        ("totals.parquet", (), "mean is double, totals.mean is struct<sum:double,count:bigint>"),
        (
            "totals.parquet",
            ("--map", "mean.sum=amount"),
            "nothing fills totals.mean.count; the table has customer string",
        ),
        ("totals.parquet", ("--map", "meen.sum=amount"), "there is no such key or field"),
        ("totals.parquet", ("--map", "orders=amount +"), "--map totals.orders: 'amount +'"),
        ("totals.parquet", ("--map", "orders=mean", *MEAN), "mean is double, totals.orders is bigint"),
        ("totals.parquet", ("--map", "orders=sum(amount)", *MEAN), "expected a value for each row, found an aggregate"),
        ("totals.parquet", ("--where", "nothing > 1", *MEAN), "--where: 'nothing > 1'"),
        ("totals.parquet", ("--where", "orders > 1000", *MEAN), "has no rows with orders > 1000"),
        ("totals.parquet", ("--without", "totals"), "no state is left to be filled"),
        ("totals.parquet", ("--without", "total"), "there is no state 'total' to leave empty"),
        ("nowhere.parquet", MEAN, "/nowhere.parquet"),
        ("nested", MEAN, "nested: 1 of 2 files would not be read: more/totals.parquet"),
        ("repeated.parquet", MEAN, "2 rows of the table repeat the key of another row, such as"),
        ("null.parquet", MEAN, "key column customer is null in 2 events"),
        ("uncounted.parquet", MEAN, "totals.orders is null or negative in 1 row, such as that of key b"),
        ("large.parquet", MEAN, "100000000000000000000"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_by_one_error(
    deployment: Deployment, file: str, more: tuple[str, ...], expected: str
) -> None:
    result = call(deployment, *words(deployment, file, *more), "--yes", "--json")
    answer = json.loads(result.stdout)
    assert result.exit_code in (1, 2)
    assert expected in answer["message"]
    catalog = deployment.catalog()
    assert catalog.head(PipelineName("sales")).head is None
    assert all(record.state is CheckpointState.ABORTED for record in catalog.list(PipelineName("sales")))


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("short.csv", "customer,orders,amount\na,1\n", "a record that cannot be read as a whole"),
        ("cut.json", '{"customer": "a", "orders": 1, "amount": 2}\n{"customer": "b", "ord\n', "--option mode=DROPMAL"),
        ("joined.json", '{"customer": "a", "orders": 1, "amount": 2} {"customer": "b"}\n', "--option mode=PERMISSIVE"),
    ],
)
def test_a_damaged_record_is_refused_with_the_option_of_the_command(
    deployment: Deployment, name: str, text: str, expected: str
) -> None:
    (Path(deployment.data) / name).write_text(text)
    option = () if name.endswith("json") else ("--option", "header=true", "--option", "inferSchema=true")
    command = words(deployment, name, "--format", name[-4:].strip("."), *option, *MEAN, "--yes")
    message = call(deployment, *command).stderr
    assert expected in message
    assert "'--option mode=" in message
    assert "options:" not in message


def test_states_that_a_table_cannot_fill_begin_empty_on_request(deployment: Deployment) -> None:
    window = "hours: {kind: value, window: {time: at, tumbling: 1h, retain: 1d}, value: {agg: count}}"
    define(deployment, "windowed", window)
    command = words(deployment, "totals.parquet", *MEAN, name="windowed")
    assert "state 'hours' has windows: a table cannot fill it" in refused(deployment, *command)
    assert "begins empty" in said(deployment, *command, "--without", "hours", "--dry-run")


def test_the_time_must_be_the_start_of_an_interval(deployment: Deployment) -> None:
    command = [*words(deployment, "totals.parquet", *MEAN)]
    command[command.index("2026-01-05")] = "2026-01-05T06:00"
    assert "no interval of the schedule '@daily' begins at 2026-01-05 06:00:00 UTC" in refused(deployment, *command)


def test_a_seed_is_published_and_survives_the_loss_of_the_catalog(deployment: Deployment, tmp_path: Path) -> None:
    define(deployment, "shown")
    path = Path(deployment.pipelines_directory) / "shown.yaml"
    publish = f"publish: {{feed: {{mode: changes, format: parquet, target: {tmp_path}/feed, state: totals}}}}\n"
    path.write_text(path.read_text() + publish)
    own = dataclasses.replace(
        deployment, catalog_url=f"sqlite:///{tmp_path}/catalog.db", storage_root=str(tmp_path / "state")
    )
    (tmp_path / "state").mkdir()
    said(own, *words(own, "totals.parquet", *MEAN, name="shown"), "--yes")
    said(own, "run", "shown")
    commits = pl.read_parquet(f"{tmp_path}/feed/**/*.parquet").sort("checkpoint_id", "customer")
    changes = commits.select("checkpoint_id", "customer", "change").rows()
    assert changes == [
        (1, "a", "insert"), (1, "b", "insert"), (1, "c", "insert"), (2, "a", "update"), (2, "d", "insert")
    ]  # fmt: skip

    Path(own.catalog_url.removeprefix("sqlite:///")).unlink()
    said(own, "catalog", "rebuild", "--yes")
    head = own.catalog().head(PipelineName("shown")).head
    assert head == 2
    assert call(own, "verify", "-p", "shown").exit_code == 0
    said(own, "restore", "shown", "1", "--yes")
    assert own.catalog().head(PipelineName("shown")).head == 1


def test_a_table_of_the_catalog_is_read_by_its_name(deployment: Deployment, spark: SparkSession) -> None:
    spark.read.parquet(f"{deployment.data}/totals.parquet").createOrReplaceTempView("all_totals")
    define(deployment, "named")
    command = ("pipelines", "seed", "named", "--until", "2026-01-05", *MEAN, "--yes", "--from")
    assert "no_totals cannot be read" in refused(deployment, *command, "no_totals")
    assert "the head of named is named/1, with 3 keys" in said(deployment, *command, "all_totals")


def test_a_delta_table_is_read_without_a_connector_of_spark(deployment: Deployment) -> None:
    totals = pl.read_parquet(f"{deployment.data}/totals.parquet")
    path = f"{deployment.data}/delta_totals"
    totals[:1].write_delta(path)
    define(deployment, "lake")
    command = (*words(deployment, "delta_totals", *MEAN, name="lake"), "--yes", "--format", "delta")
    totals[1:].write_delta(path, mode="append")
    assert "the head of lake is lake/1, with 3 keys" in said(deployment, *command)
    rows = resolve(deployment, "lake/1").to_arrow("totals")
    orders = [value["orders"] for value in rows["value"].to_pylist()]
    assert dict(zip(rows["key"].to_pylist(), orders, strict=True)) == {"a": 2, "b": 1, "c": 0}
    define(deployment, "nowhere")
    command = (*words(deployment, "none", *MEAN, name="nowhere"), "--yes", "--format", "delta")
    assert "none cannot be read: there is no table in the format delta" in refused(deployment, *command)
