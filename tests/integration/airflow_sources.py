"""A pipeline with several sources in a real Airflow: each run waits for each source, and applies the events of all."""

import re
from typing import TYPE_CHECKING

import polars as pl
import yaml

from statelib.flows.views.inspection import resolve
from tests.support.worlds import CHECKOUT

if TYPE_CHECKING:
    from tests.integration.test_airflow_run import World

BALANCES = "balances"


def balances_file() -> str:
    """Return the pipeline file of the cookbook's page, whose orders of a day are complete when a marker exists."""
    page = (CHECKOUT / "docs" / "cookbook" / "two-sources.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    content = yaml.safe_load(block)
    content["schedule"] = {"cron": "@daily", "start": "2013-01-01", "catchup": False}
    content["sources"]["orders"]["ready"] = {"marker": "_SUCCESS", "poke_interval": "1s"}
    return str(yaml.safe_dump(content, sort_keys=False))


def assert_several_sources_are_applied(world: "World") -> None:
    """Assert that runs apply orders and refunds in one checkpoint, a day without refunds, and a day whose orders are
    not complete when its run begins."""
    data, dag = world.places.data, f"{BALANCES}.checkpoint"
    days = {"2013-01-01": [("a", 10), ("b", 20), ("a", 5)], "2013-01-02": [("b", 7)]}
    for day, orders in days.items():
        (data / "orders" / day).mkdir(parents=True)
        frame = pl.DataFrame(orders, schema=["customer", "amount"], orient="row")
        frame.write_parquet(data / "orders" / day / "part-0.parquet")
    (data / "refunds").mkdir()
    (data / "refunds" / "2013-01-01.csv").write_text("customer,amount\na,3\nc,4\n")
    (data / "orders" / "2013-01-01" / "_SUCCESS").touch()
    world.client.backfill(dag, *days)
    world.succeed(world.wait("2013-01-01", dag))
    assert balances(world, 1) == {"a": (15, 2, 3, 1), "b": (20, 1, None, 0), "c": (None, 0, 4, 1)}
    (data / "orders" / "2013-01-02" / "_SUCCESS").touch()
    world.succeed(world.wait("2013-01-02", dag))
    assert balances(world, 2) == {"a": (15, 2, 3, 1), "b": (27, 2, None, 0), "c": (None, 0, 4, 1)}


def balances(world: "World", number: int) -> dict[str, tuple[int | None, ...]]:
    rows = resolve(world.deployment, f"{BALANCES}/{number}").to_arrow("balance").to_pylist()
    fields = ("ordered", "orders", "refunded", "refunds")
    return {row["key"]: tuple(row["value"][name] for name in fields) for row in rows}
