"""The pages of docs/cookbook: each pipeline on generated data, its question answered, and the answer computed a second
time by DuckDB from the events themselves."""

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

from statelib.flows.wiring import Deployment
from tests.integration.debezium import ChangedTable, write_json
from tests.integration.dimension import changes_of, versions
from tests.integration.shop import environment
from tests.integration.shop_cli import said
from tests.support.published import iceberg_environment
from tests.support.worlds import CHECKOUT, new_deployment

PAGES = CHECKOUT / "docs" / "cookbook"
DAYS = [date(2026, 1, number) for number in (1, 2, 3)]
Rows = list[list[Any]]


class Cook:
    """A deployment in which the pipelines of the pages run."""

    def __init__(self, root: Path) -> None:
        for name in ("pipelines", "data"):
            (root / name).mkdir()
        self.deployment: Deployment = new_deployment(root, root / "data", root / "pipelines")
        self.data = root / "data"
        self.chance = random.Random(root.name)
        self.variables: dict[str, str] = {}
        """Environment variables of the workers. If there are any, a run is a process of its own."""

    def answer(self, page: str, *bounds: str) -> Rows:
        """Run the commands of a page, and its pipeline over three days or the given bounds; return the answer to its
        question."""
        text = (PAGES / f"{page}.md").read_text()
        (file,), (question,) = (blocks(text, kind) for kind in ("yaml", "sql"))
        (name,) = re.findall(r"^name: (\w+)$", file, re.MULTILINE)
        (Path(self.deployment.pipelines_directory) / f"{name}.yaml").write_text(file)
        for command in blocks(text, "bash"):
            words = command.replace("\\\n", " ").replace("$STATELIB_DATA", str(self.data))
            said(self.deployment, *shlex.split(words)[1:])
        self._run(name, *(bounds or ("--end", "2026-01-04")))
        if "read_parquet('/data/" in question:
            return [list(row) for row in duckdb.sql(question.replace("/data/", f"{self.data}/")).fetchall()]
        rows: Rows = json.loads(said(self.deployment, "query", name, question, "--json"))["rows"]
        return rows

    def _run(self, name: str, *bounds: str) -> None:
        if not self.variables:
            said(self.deployment, "run", name, *bounds)
            return
        command = [sys.executable, "-m", "statelib", "run", name, *bounds]
        env = os.environ | environment(self.deployment) | self.variables
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def write(self, place: str, day: date, events: pl.DataFrame) -> None:
        directory = self.data / place / str(day)
        directory.mkdir(parents=True)
        events.sample(fraction=1, shuffle=True, seed=1).write_parquet(directory / "part-0.parquet")


def blocks(text: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def computed(sql: str, events: pl.DataFrame) -> Rows:
    """Return the result of a query on the table ``events``."""
    with duckdb.connect() as database:
        database.register("events", events.to_arrow())
        return [list(row) for row in database.execute(sql).fetchall()]


def per_day(cook: Cook, place: str, event: Callable[[date], dict[str, Any]], count: int = 60) -> pl.DataFrame:
    """Write ``count`` events per day and return all of them."""
    frames = [pl.DataFrame([event(day) for _ in range(count)]) for day in DAYS]
    for day, frame in zip(DAYS, frames, strict=True):
        cook.write(place, day, frame)
    return pl.concat(frames)


def in_order(rows: Iterable[Iterable[Any]]) -> Rows:
    return sorted((list(row) for row in rows), key=str)


@pytest.fixture
def cook(tmp_path: Path, spark: SparkSession) -> Cook:
    return Cook(tmp_path)


def change_table(cook: Cook) -> ChangedTable:
    table = ChangedTable(seed=7)
    for day in DAYS:
        write_json(cook.data / f"orders/{day}", table.day(day.day, 60))
    return table


def test_a_corrected_day(cook: Cook) -> None:
    def order(day: date) -> dict[str, Any]:
        at = datetime(day.year, day.month, day.day, cook.chance.randrange(24), tzinfo=UTC)
        return {"customer": f"c{cook.chance.randrange(9)}", "amount": cook.chance.randrange(100), "at": at}

    sql = "SELECT count(*), sum(amount), max(amount) FROM events"
    wrong = per_day(cook, "orders", order)
    assert cook.answer("a-corrected-day") == computed(sql, wrong)
    shutil.rmtree(cook.data / "orders" / str(DAYS[1]))
    corrected = pl.DataFrame([order(DAYS[1]) | {"amount": 500} for _ in range(20)])
    cook.write("orders", DAYS[1], corrected)
    text = (PAGES / "a-corrected-day.md").read_text()
    for command in blocks(text, "sh")[0].splitlines():
        said(cook.deployment, *shlex.split(command)[1:])
    rows = json.loads(said(cook.deployment, "query", "orders", blocks(text, "sql")[0], "--json"))["rows"]
    assert rows == computed(sql, pl.concat([wrong.filter(pl.col("at").dt.date() != DAYS[1]), corrected]))


def test_the_state_has_the_rows_of_the_database(cook: Cook) -> None:
    table = change_table(cook)
    rows = [[row["id"], row["customer"], row["amount"]] for row in table.rows.values()]
    assert in_order(cook.answer("rows-of-a-database")) == in_order(rows)


def test_the_totals_follow_updates_and_deletes(cook: Cook) -> None:
    table = change_table(cook)
    sql = "SELECT customer, count(*), sum(amount)::bigint, avg(amount) FROM events GROUP BY customer"
    assert in_order(cook.answer("totals-of-a-changing-table")) == in_order(
        computed(sql, pl.DataFrame(list(table.rows.values())))
    )


def test_revenue_is_exact_to_the_cent(cook: Cook) -> None:
    sales: list[tuple[str, Decimal, int, str]] = []
    (cook.data / "sales").mkdir()
    for day in DAYS:
        chosen = [
            (
                cook.chance.choice("ab"), Decimal(cook.chance.randrange(1, 10**9)) / 100, cook.chance.randrange(1, 9),
                cook.chance.choice(["", "NEW"]),
            )
            for _ in range(40)
        ]  # fmt: skip
        lines = [f"{shop};{price:.2f};{number};{code}" for shop, price, number, code in chosen]
        (cook.data / f"sales/{day}.csv").write_text("shop;price;number;code\n" + "\n".join(lines) + "\n")
        sales += chosen
    expected = []
    for shop in "ab":
        totals = [(price * number, code) for name, price, number, code in sales if name == shop]
        discounted = sum((total for total, code in totals if code), Decimal("0.00"))
        all_of = sum((total for total, _ in totals), Decimal("0.00"))
        expected.append([shop, len(totals), *map(str, (all_of, discounted, max(total for total, _ in totals)))])
    assert in_order(cook.answer("exact-revenue")) == expected


def test_orders_and_refunds_make_one_balance(cook: Cook) -> None:
    orders = per_day(
        cook, "orders", lambda _: {"customer": cook.chance.choice("abc"), "amount": cook.chance.randrange(99)}
    )
    refunds = pl.DataFrame([{"customer": "a", "amount": 30}, {"customer": "d", "amount": 7}])
    (cook.data / "refunds").mkdir()
    refunds.write_csv(cook.data / f"refunds/{DAYS[1]}.csv")
    events = pl.concat([orders.with_columns(sign=1), refunds.with_columns(sign=-1)])
    sql = (
        "SELECT customer, sum(sign * amount)::bigint, count(*) FILTER (sign = 1), count(*) FILTER (sign = -1) "
        "FROM events GROUP BY customer"
    )
    assert in_order(cook.answer("two-sources")) == in_order(computed(sql, events))


def test_a_pipeline_continues_from_a_table(cook: Cook) -> None:
    def order(day: date) -> dict[str, Any]:
        at = datetime(day.year, day.month, day.day) + timedelta(microseconds=cook.chance.randrange(86_400_000_000))
        return {"customer": cook.chance.choice("abcdef"), "amount": cook.chance.randrange(999), "at": at}

    orders = per_day(cook, "orders", order)
    amount, at = pl.col("amount"), pl.col("at")
    totals = [
        pl.len().alias("orders"), amount.sum().alias("spent"), amount.max().alias("largest"),
        amount.sort_by(at).last().alias("last_amount"), at.max().alias("last_at"),
    ]  # fmt: skip
    table = orders.filter(at < datetime(2026, 1, 2)).group_by(pl.col("customer").alias("customer_id")).agg(totals)
    table.write_parquet(cook.data / "totals.parquet")
    (cook.data / "orders" / "2026-01-01" / "part-0.parquet").unlink()
    sql = (
        'SELECT customer, count(*), sum(amount)::bigint, avg(amount), max(amount), arg_max(amount, "at") FROM events '
        "GROUP BY customer"
    )
    assert in_order(cook.answer("begin-with-a-table")) == in_order(computed(sql, orders))


@pytest.mark.timeout(600)
def test_the_totals_are_those_of_the_iceberg_table(cook: Cook, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cook.variables = iceberg_environment(tmp_path)
    for name, value in cook.variables.items():
        monkeypatch.setenv(name, value)
    sql = "SELECT customer, count(*), sum(amount)::bigint, avg(amount) FROM events GROUP BY customer"
    schema = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.int64())])

    def orders(ids: Iterable[int]) -> pa.Table:
        rows = [{"id": n, "customer": cook.chance.choice("abc"), "amount": cook.chance.randrange(999)} for n in ids]
        return pa.Table.from_pylist(rows, schema)

    with load_catalog("lake", **(Config().get_catalog_config("lake") or {})) as catalog:
        catalog.create_namespace("shop")
        lake = catalog.create_table("shop.orders", schema)
        for ids in (range(30), range(30, 60)):
            lake.append(orders(ids))
        # The intervals end after all snapshots that a test makes.
        first = cook.answer("totals-of-an-iceberg-table", "--start", "2100-01-01", "--end", "2100-01-02")
        assert in_order(first) == in_order(computed(sql, pl.DataFrame(lake.scan().to_arrow())))
        lake.append(orders(range(60, 70)))
        lake.overwrite(orders([9]), overwrite_filter="id = 9")
        lake.delete("id < 8 or customer = 'c'")
        second = cook.answer("totals-of-an-iceberg-table", "--end", "2100-01-03")
        assert in_order(second) == in_order(computed(sql, pl.DataFrame(lake.scan().to_arrow())))


def test_each_version_of_a_customer_has_the_days_of_its_validity(cook: Cook) -> None:
    """The last two days are corrected after they were applied, and applied again."""
    days = [*DAYS, date(2026, 1, 4)]
    written = {day: changes_of(day, cook.chance) for day in days}
    for day, events in written.items():
        cook.write("customers", day, pl.DataFrame(events))
    assert in_order(cook.answer("slowly-changing-dimension", "--end", "2026-01-05")) == in_order(versions(written))
    said(cook.deployment, "restore", "customers", "2", "--yes")
    for day in days[2:]:
        shutil.rmtree(cook.data / "customers" / str(day))
        written[day] = changes_of(day, cook.chance)
        cook.write("customers", day, pl.DataFrame(written[day]))
    assert in_order(cook.answer("slowly-changing-dimension", "--end", "2026-01-05")) == in_order(versions(written))


def test_each_visitor_is_counted_once(cook: Cook) -> None:
    views = per_day(
        cook, "views", lambda _: {"product": cook.chance.choice("xyz"), "visitor": cook.chance.randrange(50)}, 200
    )
    sql = "SELECT product, count(*), count(DISTINCT visitor) FROM events GROUP BY product"
    assert in_order(cook.answer("distinct-visitors")) == in_order(computed(sql, views))


def test_the_three_greatest_orders_are_kept(cook: Cook) -> None:
    numbers = iter(range(1000))
    orders = per_day(
        cook,
        "orders",
        lambda _: {
            "customer": cook.chance.choice("abcd"), "order_id": next(numbers), "amount": cook.chance.randrange(40),
        },
    )  # fmt: skip
    sql = """
        SELECT customer, list(amount ORDER BY n), list(order_id ORDER BY n) FROM (
          SELECT *, row_number() OVER (PARTITION BY customer ORDER BY amount DESC, order_id DESC) AS n FROM events
        ) WHERE n <= 3 GROUP BY customer"""
    assert in_order(cook.answer("greatest-orders")) == in_order(computed(sql, orders))


def test_a_payment_that_comes_twice_is_published_once(cook: Cook) -> None:
    def payment(day: date) -> dict[str, Any]:
        number = cook.chance.randrange(70)
        at = datetime(day.year, day.month, day.day, cook.chance.randrange(24), number % 60, tzinfo=UTC)
        return {"id": f"p{number}", "amount": number, "at": at}

    payments = per_day(cook, "payments", payment)
    sql = "SELECT count(*), sum(amount)::bigint FROM (SELECT DISTINCT id, amount FROM events)"
    assert cook.answer("duplicates") == computed(sql, payments)
    table = pl.read_parquet(cook.data / "tables/payments/commit-*/*.parquet").filter(pl.col("change") == "insert")
    assert sorted(table["id"]) == sorted(set(payments["id"]))


def test_each_alert_is_published_once(cook: Cook) -> None:
    """A customer passes the budget on the first day on which the total is greater than it."""

    def payment(day: date) -> dict[str, Any]:
        return {"customer": cook.chance.choice("abcdef"), "amount": cook.chance.randrange(1, 50_000), "day": day}

    payments = per_day(cook, "cents", payment, 12)
    payments = payments.with_columns(amount=(pl.col("amount").cast(pl.Decimal(18, 2)) / 100).cast(pl.Decimal(18, 2)))
    for day in DAYS:
        cook.write("payments", day, payments.filter(pl.col("day") == day).select("customer", "amount"))
    sql = """
        WITH totals AS (
          SELECT *, sum(added) OVER (PARTITION BY customer ORDER BY day) AS spent
          FROM (SELECT customer, day, sum(amount) AS added FROM events GROUP BY customer, day)
        )
        SELECT day::text, customer, spent::text, 'the budget is spent' FROM totals
        WHERE spent > 1000 AND spent - added <= 1000
        UNION ALL SELECT day::text, customer, amount::text, 'a large payment' FROM events WHERE amount > 400"""
    expected = in_order(computed(sql, payments))
    last = cook.answer("alerts")
    assert in_order(last) == [row[1:] for row in expected if row[0] == str(DAYS[-1])]
    feed = pl.read_parquet(cook.data / "tables/alerts/commit-*/*.parquet")
    day_of = pl.col("interval_start").dt.strftime("%Y-%m-%d")
    rows = feed.select(day_of, "customer", pl.col("amount").cast(str), "reason").rows()
    assert in_order(rows) == expected
    assert {row[3] for row in expected} == {"the budget is spent", "a large payment"}
    assert feed["change"].unique().to_list() == ["insert"]


def test_events_within_a_day_are_counted_in_their_hour(cook: Cook) -> None:
    """An event is too late if its hour ended more than a day before its interval began. The first interval has none."""

    def click(day: date) -> dict[str, Any]:
        at = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(hours=cook.chance.uniform(-40, 24))
        return {"site": cook.chance.choice("mn"), "at": at, "day": day}

    clicks = per_day(cook, "clicks", click).with_columns(hour=pl.col("at").dt.truncate("1h"))
    start = pl.col("day").cast(pl.Datetime("us", "UTC"))
    in_time = clicks.filter((pl.col("hour") + timedelta(hours=1, days=1) > start) | (pl.col("day") == DAYS[0]))
    assert 0 < in_time.height < clicks.height
    sql = "SELECT site, strftime(hour AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S+00:00'), count(*) FROM events GROUP BY ALL"
    assert in_order(cook.answer("late-events")) == in_order(computed(sql, in_time))


def test_page_views_become_visits(cook: Cook) -> None:
    """Some views of the last hour before midnight arrive with those of the next day."""

    def view(day: date) -> dict[str, Any]:
        at = datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(minutes=cook.chance.randrange(-60, 1440))
        return {"visitor": cook.chance.choice("pqr"), "page": cook.chance.choice("/abc"), "at": at}

    views = per_day(cook, "page_views", view, 90).rename({"at": "moment"})
    text = "strftime({} AT TIME ZONE 'UTC', '%Y-%m-%dT%H:%M:%S+00:00')"
    sql = f"""
        SELECT visitor, {text.format("min(moment)")}, {text.format("max(moment)")}, count(*), count(DISTINCT page),
          arg_min(page, (moment, page)), arg_max(page, (moment, page))
        FROM (
          SELECT *, sum(gap::int) OVER (PARTITION BY visitor ORDER BY moment, page) AS visit FROM (
            SELECT *, moment - lag(moment, 1, moment) OVER in_order > INTERVAL 30 MINUTE AS gap
            FROM events WINDOW in_order AS (PARTITION BY visitor ORDER BY moment, page)
          )
        ) GROUP BY visitor, visit"""
    answer = in_order(cook.answer("visits"))
    assert answer == in_order(computed(sql, views))
    assert any(began[:10] < ended[:10] for _, began, ended, *_ in answer), "a visit lasts over midnight"
    feed = pl.read_parquet(cook.data / "tables/ended_visits/commit-*/*.parquet")
    assert feed["change"].unique().to_list() == ["insert"]
    began, ended = pl.col("window_start"), pl.col("window_end") - timedelta(minutes=30)
    texts = [moment.dt.strftime("%Y-%m-%dT%H:%M:%S+00:00") for moment in (began, ended)]
    rows = feed.select("visitor", *texts, "views", pl.col("pages").list.len(), "first", "last").rows()
    is_over = [row for row in answer if row[2] <= "2026-01-03T22:30:00+00:00"]
    assert in_order(rows) == is_over
    assert len(is_over) < len(answer)


def test_the_totals_are_those_of_local_days(cook: Cook) -> None:
    first = datetime(2026, 3, 27, 23, tzinfo=UTC)  # midnight in Berlin
    zone = ZoneInfo("Europe/Berlin")
    events: list[dict[str, Any]] = [
        {"shop": cook.chance.choice("uv"), "cents": cook.chance.randrange(999), "at": first + timedelta(minutes=10 * n)}
        for n in range(71 * 6)
    ]
    (cook.data / "tills").mkdir()
    pl.DataFrame(events).write_parquet(cook.data / "tills/all.parquet")
    totals: dict[tuple[str, str], int] = {}
    for event in events:
        place = event["shop"], str(event["at"].astimezone(zone).date())
        totals[place] = totals.get(place, 0) + event["cents"]
    answer = cook.answer("local-days", "--start", "2026-03-28", "--end", "2026-03-31")
    assert {(shop, day): cents for shop, day, cents in answer} == totals
    assert len(totals) == 6


def test_every_page_is_listed_and_tested() -> None:
    pages = {path.stem for path in PAGES.glob("*.md")} - {"README"}
    listed = set(re.findall(r"\(([\w-]+)\.md\)", (PAGES / "README.md").read_text()))
    tested = set(re.findall(r'cook\.answer\("([\w-]+)"', Path(__file__).read_text()))
    assert pages == listed == tested
