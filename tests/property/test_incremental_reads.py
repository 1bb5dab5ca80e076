"""Random histories of Delta tables: what runs read, added up, is the table as of the last run, however its commits were
made, whenever they arrived, and from whichever checkpoint a run goes on."""

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.model.checkpoint import NOTHING_APPLIED, DataInterval, SourcePosition
from statelib.spark.events.tables.incremental import table_reads
from tests.support.delta_histories import append, commit_at, content
from tests.support.extent import examples
from tests.support.incremental_reads import Rows, applied

FILE = """\
name: orders
source:
  format: delta
  path: "{data}/orders"
  incremental: true
  changes: _change_type
  columns: {shop: string, amount: long}
key: shop
states:
  total: {kind: value, value: {agg: sum, of: amount}}
backend: heap
"""
HOUR = 3_600_000
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), min_size=1, max_size=4)
COMMITS = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("delete"), st.integers(0, 3)),
    st.tuples(st.just("update"), st.integers(0, 3)),
    st.tuples(st.just("optimize"), st.none()),
)
STEPS = st.one_of(
    st.tuples(st.just("commit"), COMMITS, st.integers(-90, 90)),
    st.tuples(st.just("run"), st.integers(1, 3), st.none()),
    st.tuples(st.just("restore"), st.integers(0, 5), st.none()),
)


def commit(table: Path, kind: str, argument: Any, at_ms: int, *, feed: bool) -> None:
    if kind == "append" or not table.exists():
        rows = argument if kind == "append" else [("a", 1)]
        columns = {"amount": [amount for _, amount in rows], "shop": [shop for shop, _ in rows]}
        append(table, columns, at_ms, feed=feed)
        return
    delta = DeltaTable(str(table))
    before = delta.version()
    if kind == "delete":
        delta.delete(f"amount = {argument}")
    elif kind == "update":
        delta.update(updates={"amount": "amount + 1"}, predicate=f"amount = {argument}")
    else:
        delta.optimize.compact()
    if DeltaTable(str(table)).version() != before:
        commit_at(table, at_ms)


@pytest.mark.slow
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=3, max_size=12), feed=st.booleans(), tasks=st.integers(1, 4))
@example(
    steps=[("run", 1, None), ("commit", ("append", [("a", 1)]), -61), ("run", 1, None)], feed=False, tasks=1
)  # the first commit arrives late
def test_reads_add_up_to_the_table(steps: list[tuple[str, Any, Any]], feed: bool, tasks: int) -> None:
    with TemporaryDirectory() as directory:
        root, now = Path(directory), 100 * HOUR
        (root / "orders.yaml").write_text(
            FILE.replace("changes: _change_type", "on_missing: empty\n  changes: _change_type")
        )
        pipeline = load_pipeline(root / "orders.yaml")
        states: list[tuple[SourcePosition, Rows]] = [(NOTHING_APPLIED, Counter())]
        head = 0
        for step, argument, minutes in steps:
            now += HOUR
            if step == "commit":
                commit(root / "orders", *argument, now + minutes * 60_000, feed=feed)
            elif step == "restore":
                head = argument % len(states)
            else:
                position, rows = run(pipeline, root, states[head], now, tasks)
                states.append((position, rows))
                head = len(states) - 1


def run(
    pipeline: Pipeline, root: Path, before: tuple[SourcePosition, Rows], now: int, tasks: int
) -> tuple[SourcePosition, Rows]:
    """Apply one interval that ends now; return position and rows after it. Compare the rows with the table."""
    position, rows = before
    start = position.interval.end_ms if position.interval else now - HOUR
    interval = DataInterval(min(start, now - 1), now)
    reads = table_reads(pipeline, str(root), interval, position, "token")
    read = reads.of.get("source")
    after = applied(rows, read, tasks)
    if read is not None:
        assert after == content(root / "orders", read.upto)
        assert read.upto == newest_before(root / "orders", now)
    return SourcePosition(interval, now - 1, reads.versions(position)), after


def newest_before(table: Path, moment_ms: int) -> int:
    """Return the version before the first commit at or after a moment."""
    commits = sorted((int(c["version"]), c["timestamp"]) for c in DeltaTable(str(table)).history())
    return next((version for version, timestamp in commits if timestamp >= moment_ms), len(commits)) - 1
