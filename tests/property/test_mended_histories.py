"""Random histories of a pipeline whose intervals are mended: its state is always that of a pipeline that ran all
corrected intervals from the first one on."""

import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.kept_deltas import mendable_intervals
from statelib.flows.checkpoint.steps import register
from statelib.flows.mending.steps import begin_mend, plan_mend
from statelib.functions.change_logs.changes import APPLIED, CHANGE, DELETED
from statelib.model.ids import CheckpointId
from tests.support.extent import examples
from tests.support.twins import DELETES, Twins, counts, manifest, rows
from tests.support.worlds import checkpoint_of, day, publish_here

PIPELINE = """\
name: NAME
source: {path: "{data}/{start}-{end}", columns: {user: string, item: string, price: long, rate: double, at: long}}
key: [user]
states:
  spent:
    kind: value
    fields:
      sum: {agg: sum, of: price}
      rates: {agg: sum, of: rate}
      n: {agg: count}
      mean: {agg: avg, of: price}
      last: {agg: last, of: item, by: at}
      items: {agg: distinct, of: item}
      best: {agg: top, of: item, by: price, n: 2}
      users: {agg: approx_distinct, of: item}
  least: {kind: reducing, value: {agg: min, of: price}}
  shares: {kind: aggregating, fields: {n: {agg: count}, at: {agg: histogram, of: at, bounds: [150, 350]}}}
  per_item: {kind: map, user_key: item, fields: {n: {agg: count}, most: {agg: max, of: price}}}
backend: BACKEND
parallelism: PARALLELISM
max_parallelism: 8
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 64, reads: READSKEEPS}
"""
DELETING = PIPELINE.replace("source: {", f"order_by: [at]\n{DELETES}").replace("  per_item:", "# per_item:")
STRATEGIES = [("heap", "canonical"), ("heap", "changelog"), ("rocksdb", "incremental"), ("rocksdb", "changelog")]
EVERYBODY = [0, 1, 2, 3, 4, 5]
DIVIDED = [("rescale", 0, []), ("run", 0, [0]), ("run", 0, EVERYBODY), ("rescale", 1, []), ("mend", 0, [0, 0])]
"""After it, one of two subtasks has a part of an earlier subtask's delta, and the other has replaced its part."""
LOOKED_UP = STRATEGIES[3]
"""The storing of which single entries can be read."""
USERS = st.lists(st.integers(0, 5), max_size=6)
STEPS = st.tuples(st.sampled_from(["mend", "mend", "mend", "run", "restore", "rescale"]), st.integers(0, 9), USERS)
KEPT_DAYS = 5


class History(Twins):
    """Pipelines that keep deltas for five days and read their state in different ways. ``applied``: the events of each
    day of the present state."""

    def __init__(self, root: Path, storing: tuple[str, str], file: str) -> None:
        backend, strategy = storing
        self.words = {"BACKEND": backend, "STRATEGY": strategy}
        self.applied: list[pa.Table] = []
        self.histories: list[list[pa.Table]] = []
        self.replays = 0
        keeping = {**self.words, "KEEPS": f", mendable: {KEPT_DAYS}d"}
        reads = ("touched", "whole") if storing == LOOKED_UP else ("auto",)
        super().__init__(root, file, {each: keeping | {"READS": each} for each in reads})

    def step(self, kind: str, number: int, users: list[int]) -> None:
        if kind == "run":
            self.run(users)
        elif kind == "mend":
            self.mend(number % len(self.applied), users)
        elif kind == "restore":
            self.restore(number)
        else:
            self.rescale(number % 3 + 1)

    def apply(self, events: pa.Table) -> None:
        self.applied = [*self.applied, events]
        super().apply(events)

    def mend(self, number: int, users: list[int]) -> None:
        if number < len(self.applied) - KEPT_DAYS:
            for name in self.settings:
                with pytest.raises(InvalidRequestError, match="keeps no delta"):
                    plan_mend(self.deployment, self.deployment.pipeline(name), day(number + 1))
            return
        events = self.events_of(number + 1, users)
        self.applied = [*self.applied[:number], events, *self.applied[number + 1 :]]
        self.took({name: self.mended(name, number + 1, events) for name in self.settings})

    def mended(self, name: str, number: int, events: pa.Table) -> CheckpointId:
        pipeline = self.deployment.pipeline(name)
        plan = plan_mend(self.deployment, pipeline, day(number))
        begun = begin_mend(self.deployment, pipeline, plan, "test")
        publish_here(self.deployment, pipeline, begun.checkpoint_id, events)
        return register(self.deployment, pipeline, begun.checkpoint_id).checkpoint_id

    def restore(self, number: int) -> None:
        self.applied = self.histories[number % len(self.histories)]
        super().restore(number)

    def took(self, made: dict[str, CheckpointId]) -> None:
        """Note a checkpoint of each pipeline. Compare them with each other and with a replay of their days."""
        self.histories.append(self.applied)
        super().took(made)
        self.replays += 1
        replay, mended = f"replay{self.replays}", next(iter(made))
        self.write(replay, {**self.words, "READS": "auto", "KEEPS": ""})
        for number, events in enumerate(self.applied, start=1):
            checkpoint_of(self.deployment, replay, number, events)
        for state in self.deployment.pipeline(replay).states:
            assert rows(self.opened(mended), state) == rows(self.opened(replay), state)

    def compare(self) -> None:
        super().compare()
        first = max(0, len(self.applied) - KEPT_DAYS)
        expected = tuple(day(number + 1) for number in range(first, len(self.applied)))
        for name in self.settings:
            assert mendable_intervals(self.deployment.pipeline(name), self.opened(name)) == expected
        if len(self.settings) > 1:
            one, other = (counts(self.opened(name)) for name in self.settings)
            assert one == other

    def events(self, users: list[int]) -> pa.Table:
        return self.events_of(self.day, users)

    def events_of(self, number: int, users: list[int]) -> pa.Table:
        salt = len(self.checkpoints)
        events = pa.table(
            {
                "user": [f"u{n}" for n in users],
                "item": [f"i{(n + number + salt) % 3}" for n in users],
                "price": pa.array([n * number + salt for n in users], pa.int64()),
                "rate": pa.array([n / 7 + salt / 3 for n in users], pa.float64()),
                "at": pa.array([number * 100 + i for i in range(len(users))], pa.int64()),
            }
        )
        if self.file is not DELETING:
            return events
        changes = [DELETED if (n + number + salt) % 3 == 0 else APPLIED for n in users]
        return events.append_column(CHANGE, pa.array(changes, pa.int8()))


@settings(max_examples=examples(6), deadline=None)
@given(
    runs=st.lists(USERS, min_size=2, max_size=4),
    steps=st.lists(STEPS, min_size=3, max_size=8),
    storing=st.sampled_from(STRATEGIES),
    file=st.sampled_from([PIPELINE, DELETING]),
)
def test_a_mended_state_is_that_of_a_replay(
    runs: list[list[int]], steps: list[tuple[str, int, list[int]]], storing: tuple[str, str], file: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        take(Path(root), runs, steps, storing, file)


@pytest.mark.parametrize(
    ("runs", "steps", "storing", "file"),
    [
        ([[0, 1], [0, 2], [0, 1, 3]], [("mend", n, [0, 0, 4 + n]) for n in range(3)], STRATEGIES[0], PIPELINE),
        ([[0, 1], [0, 2], [0, 1, 3]], [("mend", n, [0, 1 + n, 2]) for n in (2, 0, 1, 0)], STRATEGIES[2], DELETING),
        ([[0, 1], [0, 2], [0, 1, 3]], [("mend", n, [0, 1 + n, 2]) for n in (2, 0, 1, 0)], LOOKED_UP, PIPELINE),
        ([], [*DIVIDED, ("rescale", 0, []), ("mend", 1, [0, 1])], STRATEGIES[0], PIPELINE),
    ],
    ids=["each day", "days with deletes", "looked up", "divided deltas"],
)
def test_such_mends_give_the_state_of_a_replay(
    tmp_path: Path, runs: list[list[int]], steps: list[tuple[str, int, list[int]]], storing: tuple[str, str], file: str
) -> None:
    take(tmp_path, runs, steps, storing, file)


def take(
    root: Path, runs: list[list[int]], steps: list[tuple[str, int, list[int]]], storing: tuple[str, str], file: str
) -> None:
    """Take the runs, then the steps. After each of them, all states are compared with those of a replay."""
    history = History(root, storing, file)
    for users in runs:
        history.run(users)
    for kind, number, users in steps:
        history.step(kind, number, users)


def test_a_correction_reads_only_the_entries_of_both_deltas(tmp_path: Path) -> None:
    history = History(tmp_path, LOOKED_UP, PIPELINE)
    for users in (list(range(40)), [1, 2], [2, 40]):
        history.run(users)
    history.mend(1, [2, 3])
    assert manifest(history.opened("touched")).restored_from == ("touched", "touched")
    assert "touched" not in manifest(history.opened("whole")).restored_from


def test_an_interval_is_mended_that_a_shorter_time_no_longer_covers(tmp_path: Path) -> None:
    history = History(tmp_path, STRATEGIES[0], PIPELINE)
    for users in ([0, 1], [0, 1], [0, 1]):
        history.run(users)
    words = history.settings["auto"]
    history.write("auto", {**words, "KEEPS": ", mendable: 2d"})
    history.mend(0, [0])


def test_an_interval_before_one_without_a_delta_is_not_mended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(tmp_path, STRATEGIES[0], PIPELINE)
    history.run([0, 1])
    monkeypatch.setattr(
        "statelib.spark.snapshot.subtask.kept_deltas.LIMIT_BYTES", 100
    )  # the delta of the second day is larger
    checkpoint_of(history.deployment, "auto", 2, history.events_of(2, [0, 1]))
    with pytest.raises(InvalidRequestError, match=r"keeps no delta .* keeps none"):
        plan_mend(history.deployment, history.deployment.pipeline("auto"), day(1))
