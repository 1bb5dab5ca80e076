"""Deleted keys against a dict, event by event, in every backend and strategy, with restores, rescaling and expiry.

The dict applies one event after the other in their order. The states receive the events of an interval at once, in
another order."""

import random
import shutil
import tempfile
from collections import deque
from copy import deepcopy
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from statelib.backends.keys.distinct import KeyCounter
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.functions.change_logs.changes import APPLIED, CHANGE, DELETED
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.stored_content import read_content
from tests.support.extent import examples
from tests.support.worlds import day, new_deployment, publish_here

NAME = PipelineName("carts")
CARTS = """\
name: carts
source:
  path: "{data}/carts-{start:%Y-%m-%d}"
  delete_when: "op = 'd'"
  columns: {user: string, item: string, n: long, at: instant, day: long, position: long}
key: user
order_by: [day, position]
max_parallelism: 8
states:
  total:
    kind: value
    fields: {events: {agg: count}, sum: {agg: sum, of: n}, last: {agg: last, of: n, by: [day, position]}}
  recent: {kind: value, value: {agg: count}, ttl: 2d, update: on_read_and_write}
  per_item: {kind: map, user_key: item, value: {agg: sum, of: n}}
  numbers: {kind: list, value: {agg: collect, of: n}}
  hourly: {kind: reducing, value: {agg: count}, window: {time: at, tumbling: 1h, allowed_lateness: 90d, retain: 0s}}
  visits:
    {kind: reducing, value: {agg: sum, of: n}, window: {time: at, session: 22h, allowed_lateness: 90d, retain: 0s}}
backend: BACKEND
parallelism: 2
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0}
"""
WAYS = [
    ("heap", "full"), ("heap", "canonical"), ("heap", "changelog"), ("rocksdb", "full"), ("rocksdb", "canonical"),
    ("rocksdb", "incremental"), ("rocksdb", "changelog"),
]  # fmt: skip
EVENTS = st.lists(
    st.tuples(st.sampled_from("abcdef"), st.sampled_from(["x", "y"]), st.integers(-9, 9), st.integers(0, 3)),
    max_size=12,
)
"""Events as (user, item, number, hour). An hour of 0 is a delete."""
DAY_MS = 86_400_000
Event = tuple[str, str, int, int]


class Reference:
    """The state of each key as Python values."""

    def __init__(self) -> None:
        self.live: dict[str, list[tuple[str, int, int, int]]] = {}
        """The events since the last delete per key: item, number, day, hour."""
        self.recent: dict[str, tuple[int, int]] = {}
        """The count of the state with a time to live, and the day of its last access."""

    def apply(self, number: int, events: list[Event]) -> None:
        self.recent = {user: (count, seen) for user, (count, seen) in self.recent.items() if number - seen < 2}
        for user, item, n, hour in events:
            if not hour:
                self.live.pop(user, None)
                self.recent.pop(user, None)
                continue
            self.live.setdefault(user, []).append((item, n, number, hour))
            self.recent[user] = self.recent.get(user, (0, 0))[0] + 1, number

    def states(self) -> dict[str, Any]:
        sums: dict[tuple[str, str], int] = {}
        windows: dict[tuple[str, int], int] = {}
        for user, events in self.live.items():
            for item, n, number, hour in events:
                sums[user, item] = sums.get((user, item), 0) + n
                start_ms = day(number).start_ms + hour * 3_600_000
                windows[user, start_ms] = windows.get((user, start_ms), 0) + 1
        return {
            "total": {u: (len(e), sum(n for _, n, *_ in e), e[-1][1]) for u, e in self.live.items()},
            "recent": {user: count for user, (count, _) in self.recent.items()},
            "per_item": sums,
            "numbers": {user: sorted(n for _, n, *_ in events) for user, events in self.live.items()},
            "hourly": windows,
            "visits": {(user, *bounds): n for user, each in self.live.items() for bounds, n in sessions(each)},
        }


def sessions(events: list[tuple[str, int, int, int]]) -> list[tuple[tuple[int, int], int]]:
    """Return the bounds of the sessions of one key, and the sum of their numbers."""
    result: list[tuple[tuple[int, int], int]] = []
    for moment, n in sorted((day(number).start_ms + hour * 3_600_000, n) for _, n, number, hour in events):
        bounds, total = (moment, moment + 22 * 3_600_000), n
        if result and moment <= result[-1][0][1]:
            (start, _), before = result.pop()
            bounds, total = (start, bounds[1]), before + n
        result.append((bounds, total))
    return result


def table_of(number: int, events: list[Event], order: list[int]) -> pa.Table:
    """Return the events of a day as a table, in which their rows have another order."""
    moments = [day(number).start_ms + hour * 3_600_000 for *_, hour in events]
    table = pa.table(
        {
            "user": pa.array([event[0] for event in events], pa.string()),
            "item": pa.array([event[1] for event in events], pa.string()),
            "n": pa.array([event[2] for event in events], pa.int64()),
            "at": pa.array(moments, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
            "day": pa.array([number] * len(events), pa.int64()),
            "position": pa.array(range(len(events)), pa.int64()),
            CHANGE: pa.array([APPLIED if event[3] else DELETED for event in events], pa.int8()),
        }
    )
    return table.take(pa.array([i for i in order if i < len(events)], pa.int64()))


def stored(deployment: Deployment, number: CheckpointId) -> dict[str, Any]:
    """Return the states of a checkpoint in the form of :meth:`Reference.states`."""
    rows = {
        name: resolve(deployment, f"carts/{number}").to_arrow(name).to_pylist()
        for name in ("total", "recent", "per_item", "numbers", "hourly", "visits")
    }
    return {
        "total": {
            r["key"]: (r["value"]["events"], r["value"]["sum"], r["value"]["last"]["value"]) for r in rows["total"]
        },
        "recent": {r["key"]: r["value"]["value"] for r in rows["recent"]},
        "per_item": {(r["key"], r["user_key"]): r["value"] for r in rows["per_item"]},
        "numbers": {r["key"]: sorted(r["value"]) for r in rows["numbers"]},
        "hourly": {(r["key"], int(r["namespace"]["start"].timestamp() * 1000)): r["value"] for r in rows["hourly"]},
        "visits": {
            (r["key"], *(int(r["namespace"][bound].timestamp() * 1000) for bound in ("start", "end"))): r["value"]
            for r in rows["visits"]
        },
    }


class DeletedKeys(RuleBasedStateMachine):
    @initialize(way=st.sampled_from(WAYS))
    def begin(self, way: tuple[str, str]) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="deleted-keys-"))
        text = CARTS.replace("BACKEND", way[0]).replace("STRATEGY", way[1])
        (self.root / "pipelines").mkdir()
        (self.root / "pipelines" / "carts.yaml").write_text(text)
        self.deployment = new_deployment(self.root, self.root, self.root / "pipelines")
        self.pipeline = self.deployment.pipeline(NAME)
        self.reference = Reference()
        self.days: dict[CheckpointId, tuple[int, Reference]] = {}
        self.day = 0

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    @rule(events=EVENTS, order=st.permutations(range(12)), judged=st.sampled_from([False, False, False, True]))
    def run(self, events: list[Event], order: list[int], judged: bool) -> None:
        self.day += 1
        begun = begin(self.deployment, self.pipeline, day(self.day), "test").checkpoint_id
        publish_here(self.deployment, self.pipeline, begun, table_of(self.day, events, order))
        if judged:
            check(self.deployment, self.pipeline, begun)
        record = register(self.deployment, self.pipeline, begun)
        self.reference.apply(self.day, events)
        assert stored(self.deployment, begun) == self.reference.states()
        opened = open_checkpoint(record.directory, own=True, storage_root=self.deployment.storage_root)
        assert opened.manifest is not None
        assert opened.manifest.keys is not None
        assert opened.manifest.total_keys == len(self.reference.live)
        assert opened.manifest.keys.same(read_content(opened, str(self.root / "scratch")).keys)
        with_timers = KeyCounter(opened.schema(), with_timers=True)
        deque(with_timers.passing(opened.rows(str(self.root / "scratch"))), 0)
        assert with_timers.counts().total == len(self.reference.live), "no timer is left"
        self.days[begun] = self.day, deepcopy(self.reference)

    @precondition(lambda self: self.day)
    @rule(which=st.integers(0, 99), parallelism=st.sampled_from([1, 2, 3, 5]))
    def restore(self, which: int, parallelism: int) -> None:
        chosen = sorted(self.days)[which % len(self.days)]
        plan = plan_restore(self.deployment, self.pipeline, str(chosen), parallelism, ClaimMode.NO_CLAIM)
        apply_restore(self.deployment, self.pipeline, plan, "test")
        self.day, reference = self.days[chosen]
        self.reference = deepcopy(reference)


DeletedKeys.TestCase.settings = settings(
    max_examples=examples(4),
    stateful_step_count=8,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestDeletedKeys = DeletedKeys.TestCase


@pytest.mark.parametrize("way", WAYS, ids=map("-".join, WAYS))
def test_every_backend_and_strategy_has_the_states_of_the_dict(way: tuple[str, str]) -> None:
    choose = random.Random("-".join(way))
    machine = DeletedKeys()
    machine.begin(way)
    try:
        for step in range(5):
            events = [
                (choose.choice("abcdef"), choose.choice("xy"), choose.randint(-9, 9), choose.choice([0, 1, 1, 2]))
                for _ in range(12)
            ]
            machine.run(events, choose.sample(range(12), 12), judged=step == 3)
            if step == 2:
                machine.restore(choose.randint(0, 2), 3)
    finally:
        machine.teardown()
