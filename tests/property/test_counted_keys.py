"""Distinct keys, counted from run to run, are those of a set, whatever expires, fires, is rescaled or restored.

The set is made from the decoded entries of the published snapshots, which the count does not use: a run counts from
its writes, the gate from serialized keys."""

import dataclasses
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.formats.manifest.trailer import append_manifest, read_checkpoint_file
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, ClaimMode
from statelib.model.state import KeyCounts
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.verification.stored_content import read_content
from tests.support.extent import examples
from tests.support.worlds import day, new_deployment, publish_here

NAME = PipelineName("carts")
CARTS = """\
name: carts
source:
  path: "{data}/carts-{start:%Y-%m-%d}"
  columns: {user: string, shop: long, item: string, at: instant}
key: [user, shop]
max_parallelism: 8
states:
STATES
backend: BACKEND
parallelism: 2
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0, retain: {count: 3}}
"""
STATES = {
    "last": "{kind: value, fields: {item: {agg: last, of: item, by: item}}, ttl: 2d}",
    "per_item": "{kind: map, user_key: item, value: {agg: count}, ttl: 36h, update: on_read_and_write}",
    "hourly": "{kind: reducing, value: {agg: count}, window: {time: at, tumbling: 1h, retain: 30h}}",
    "total": "{kind: value, value: {agg: count}, ttl: 3d}",
}
WAYS = [
    ("heap", "full"), ("heap", "canonical"), ("heap", "changelog"), ("rocksdb", "full"), ("rocksdb", "canonical"),
    ("rocksdb", "incremental"), ("rocksdb", "changelog"),
]  # fmt: skip
CHOSEN = st.sets(st.sampled_from(sorted(STATES)), min_size=1)
USERS = st.sets(st.integers(0, 9), max_size=6)


def written(root: Path, backend: str, strategy: str, states: set[str]) -> Deployment:
    lines = "\n".join(f"  {name}: {STATES[name]}" for name in sorted(states))
    text = CARTS.replace("STATES", lines).replace("BACKEND", backend).replace("STRATEGY", strategy)
    (root / "pipelines").mkdir(exist_ok=True)
    (root / "pipelines" / "carts.yaml").write_text(text)
    return new_deployment(root, root, root / "pipelines")


def events_of(number: int, users: set[int]) -> pa.Table:
    """Return two events of each user, at noon and just before midnight of a day. Each user has a shop of their own."""
    rows = [(f"u{n}", n % 2, f"item-{n % 3}-{number % 2}", hour) for n in sorted(users) for hour in (12, 23)]
    moments = [day(number).start_ms + hour * 3_600_000 for *_, hour in rows]
    return pa.table(
        {
            "user": pa.array([row[0] for row in rows], pa.string()),
            "shop": pa.array([row[1] for row in rows], pa.int64()),
            "item": pa.array([row[2] for row in rows], pa.string()),
            "at": pa.array(moments, pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC")),
        }
    )


def decoded_keys(opened: Checkpoint) -> set[str]:
    return {repr(key) for _, table in opened.tables() for key in table["key"].to_pylist()}


def published(deployment: Deployment, number: int, users: set[int]) -> CheckpointId:
    pipeline = deployment.pipeline(NAME)
    begun = begin(deployment, pipeline, day(number), "test")
    publish_here(deployment, pipeline, begun.checkpoint_id, events_of(number, users))
    return begun.checkpoint_id


def run(deployment: Deployment, number: int, users: set[int]) -> CheckpointRecord:
    """Take a run with its gate."""
    checkpoint_id = published(deployment, number, users)
    check(deployment, deployment.pipeline(NAME), checkpoint_id)
    return register(deployment, deployment.pipeline(NAME), checkpoint_id)


class CountedKeys(RuleBasedStateMachine):
    @initialize(way=st.sampled_from(WAYS), states=CHOSEN)
    def begin(self, way: tuple[str, str], states: set[str]) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="counted-keys-"))
        self.deployment = written(self.root, *way, states)
        self.days: dict[CheckpointId, int] = {}
        self.day = 0

    def teardown(self) -> None:
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    def _is_right(self, record: CheckpointRecord) -> None:
        opened = open_checkpoint(record.directory, own=True, storage_root=self.deployment.storage_root)
        manifest = opened.manifest
        assert manifest is not None
        assert manifest.keys is not None
        assert manifest.total_keys == record.keys == len(decoded_keys(opened))
        assert manifest.keys.same(read_content(opened, str(self.root / "scratch")).keys)

    @rule(users=USERS, skipped=st.sampled_from([0, 0, 1, 3]))
    def run(self, users: set[int], skipped: int) -> None:
        for number in range(self.day + 1, self.day + 2 + skipped):
            checkpoint_id = published(self.deployment, number, users if number == self.day + 1 + skipped else set())
            record = register(self.deployment, self.deployment.pipeline(NAME), checkpoint_id)
            self._is_right(record)
        self.day += 1 + skipped
        self.days[record.checkpoint_id] = self.day

    @precondition(lambda self: self.day)
    @rule(form=st.sampled_from(["canonical", "native"]), key=st.uuids())
    def savepoint(self, form: str, key: object) -> None:
        pipeline = self.deployment.pipeline(NAME)
        begun = begin_savepoint(
            self.deployment, pipeline, format=form, target=None, note="", owner="test", key=f"{key}"
        )
        publish_here(self.deployment, pipeline, begun.checkpoint_id)
        record = register(self.deployment, pipeline, begun.checkpoint_id)
        self._is_right(record)
        self.days[record.checkpoint_id] = self.day

    @precondition(lambda self: self.day)
    @rule(which=st.integers(0, 99), parallelism=st.sampled_from([1, 2, 3, 5]))
    def restore(self, which: int, parallelism: int) -> None:
        records = [
            r
            for r in self.deployment.catalog().list(NAME, (CheckpointState.COMPLETED,))
            if r.checkpoint_id in self.days
        ]
        chosen = records[which % len(records)]
        pipeline = self.deployment.pipeline(NAME)
        plan = plan_restore(self.deployment, pipeline, str(chosen.checkpoint_id), parallelism, ClaimMode.NO_CLAIM)
        assert plan.keys == chosen.keys
        apply_restore(self.deployment, pipeline, plan, "test")
        self.day = self.days[chosen.checkpoint_id]


CountedKeys.TestCase.settings = settings(
    max_examples=examples(5),
    stateful_step_count=6,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestCountedKeys = CountedKeys.TestCase


def without_counts(keys: KeyCounts) -> KeyCounts | None:
    return None


def with_keys_of_timers(keys: KeyCounts) -> KeyCounts:
    """Return counts with a key more, as if it had only timers."""
    more = keys.keys.copy()
    more[0] += 1
    return dataclasses.replace(keys, keys=more, with_timers=True)


def as_an_older_version_wrote_it(
    record: CheckpointRecord, counts: Callable[[KeyCounts], KeyCounts | None] = without_counts
) -> None:
    """Take the counts out of a manifest, or change them."""
    path = Path(record.directory.removeprefix("file:")) / "_metadata"
    metadata, manifest = read_checkpoint_file(path.read_bytes())
    assert manifest is not None
    assert manifest.keys is not None
    older = dataclasses.replace(manifest, keys=counts(manifest.keys))
    path.write_bytes(append_manifest(encode_metadata(metadata), older))


@pytest.mark.parametrize("older", [without_counts, with_keys_of_timers])
@pytest.mark.parametrize(("backend", "strategy"), WAYS, ids=map("-".join, WAYS))
def test_a_base_without_a_count_gives_no_wrong_number(
    tmp_path: Path, backend: str, strategy: str, older: Callable[[KeyCounts], KeyCounts | None]
) -> None:
    deployment = written(tmp_path, backend, strategy, set(STATES))
    first = run(deployment, 1, {1, 2, 3})
    assert first.keys == 3
    as_an_older_version_wrote_it(first, older)
    second = published(deployment, 2, {3, 4})
    record = deployment.catalog().get(NAME, second)
    manifest = open_checkpoint(record.directory, own=True).manifest
    assert manifest is not None
    reads_all = backend == "heap" or strategy not in ("incremental", "changelog")
    assert manifest.total_keys == (4 if reads_all else None)
    check(deployment, deployment.pipeline(NAME), second)
    assert register(deployment, deployment.pipeline(NAME), second).keys == 4, "the gate reads all of it"
    third = open_checkpoint(run(deployment, 3, {5}).directory, own=True).manifest
    assert third is not None
    assert third.total_keys == 5


def test_without_a_count_of_the_base_the_number_of_keys_is_unknown(tmp_path: Path) -> None:
    deployment = written(tmp_path, "rocksdb", "incremental", set(STATES))
    as_an_older_version_wrote_it(run(deployment, 1, {1, 2, 3}))
    second = published(deployment, 2, {3, 4})
    assert register(deployment, deployment.pipeline(NAME), second).keys is None


def test_a_count_of_an_older_version_is_used_if_there_are_no_timers(tmp_path: Path) -> None:
    deployment = written(tmp_path, "rocksdb", "incremental", {"last", "total"})
    as_an_older_version_wrote_it(
        run(deployment, 1, {1, 2, 3}), lambda keys: dataclasses.replace(keys, with_timers=True)
    )
    second = published(deployment, 2, {3, 4})
    assert register(deployment, deployment.pipeline(NAME), second).keys == 4


def test_keys_of_only_a_dropped_state_are_no_longer_counted(tmp_path: Path) -> None:
    deployment = written(tmp_path, "rocksdb", "incremental", {"total", "last"})
    run(deployment, 1, {1, 2, 3})
    run(deployment, 2, set())
    run(deployment, 3, {4})  # The state 'last' of the first day has expired, 'total' has not.
    deployment = written(tmp_path, "rocksdb", "incremental", {"last"})
    path = tmp_path / "pipelines" / "carts.yaml"
    path.write_text(path.read_text() + "allow_non_restored_state: true\n")
    fourth = published(deployment, 4, {5})
    record = deployment.catalog().get(NAME, fourth)
    manifest = open_checkpoint(record.directory, own=True).manifest
    assert manifest is not None
    assert manifest.keys is None
    check(deployment, deployment.pipeline(NAME), fourth)
    assert register(deployment, deployment.pipeline(NAME), fourth).keys == 2


def test_the_gate_refuses_a_wrong_number_of_keys(tmp_path: Path) -> None:
    deployment = written(tmp_path, "heap", "full", set(STATES))
    number = published(deployment, 1, {1, 2, 3})
    record = deployment.catalog().get(NAME, number)
    path = Path(record.directory.removeprefix("file:")) / "_metadata"
    metadata, manifest = read_checkpoint_file(path.read_bytes())
    assert manifest is not None
    assert manifest.keys is not None
    more = dataclasses.replace(manifest.keys, keys=manifest.keys.keys + 1)
    path.write_bytes(append_manifest(encode_metadata(metadata), dataclasses.replace(manifest, keys=more)))
    with pytest.raises(Exception, match="expected 1 distinct key, found 0") as refusal:
        check(deployment, deployment.pipeline(NAME), number)
    assert getattr(refusal.value, "kind", "") == "gate-failed"
