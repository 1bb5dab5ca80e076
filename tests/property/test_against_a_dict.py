"""The whole system, with real flows, files, strategies and catalog, is compared with a dict of keys and a list of
snapshots."""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from statelib.backends.rocksdb.writing import new_tables
from statelib.errors import ConflictError
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import abort, begin, register
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.recovery.rebuild import apply_rebuild, plan_rebuild
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, ClaimMode, Owner
from statelib.savepoints.verification.snapshots import verify
from statelib.storage.uris import local_path
from tests.support.extent import rounds
from tests.support.figures import record
from tests.support.worlds import day, new_deployment, publish_here

NAME = PipelineName("dict")
PIPELINE = """\
name: dict
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{key: string, value: long}}}}
key: [key]
states:
  total: {{kind: value, value: {{agg: sum, of: value}}}}
backend: {0}
parallelism: 2
max_parallelism: 8
checkpoint: {{strategy: {1}, inline_threshold_bytes: {2}, retain: {{count: 2}}}}
"""
KINDS = [("heap", "canonical", 0), ("heap", "full", 300), ("rocksdb", "incremental", 0), ("rocksdb", "changelog", 0)]
KEYS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
Values = dict[str, int]
"""The sum of the values that were put, by key: it differs if a value is applied twice or not at all."""


class Model:
    """The expected state: the values of each snapshot, and the changes since the newest one."""

    def __init__(self) -> None:
        self.head: int | None = None
        self.changes: list[tuple[str, int]] = []
        self.snapshots: dict[int, Values] = {}
        self.days: dict[int | None, int] = {None: 0}

    def now(self) -> Values:
        return {} if self.head is None else self.snapshots[self.head]

    def checkpoint(self, number: int) -> None:
        after = dict(self.now())
        for key, value in self.changes:
            after[key] = after.get(key, 0) + value
        self.snapshots[number] = after
        self.days[number] = self.days[self.head] + 1
        self.head, self.changes = number, []

    def savepoint(self, number: int) -> None:
        self.snapshots[number], self.days[number] = self.now(), self.days[self.head]


class Everything(RuleBasedStateMachine):
    @initialize(kind=st.sampled_from(KINDS), written_anew=st.booleans())
    def begin(self, kind: tuple[str, str, int], written_anew: bool) -> None:
        """``written_anew``: RocksDB's states are written anew if most of their entries change, however few they are."""
        self.attributes = pytest.MonkeyPatch()
        self.attributes.setattr(new_tables, "FEWEST_ENTRIES", 1 if written_anew else 1_000_000)
        self.root = Path(tempfile.mkdtemp(prefix="against-a-dict-"))
        (self.root / "pipelines").mkdir()
        (self.root / "pipelines" / "dict.yaml").write_text(PIPELINE.format(*kind))
        self.deployment: Deployment = new_deployment(self.root, self.root, self.root / "pipelines")
        self.catalogs = 0
        self.model = Model()

    def teardown(self) -> None:
        if hasattr(self, "root"):
            self.attributes.undo()
            shutil.rmtree(self.root)

    # -- the state ---------------------------------------------------------------------------

    @rule(key=KEYS, value=st.integers(0, 9))
    def put(self, key: str, value: int) -> None:
        self.model.changes.append((key, value))

    def _records(self, *states: CheckpointState) -> list[CheckpointRecord]:
        return self.deployment.catalog().list(NAME, states or (CheckpointState.COMPLETED,))

    def _begin(self) -> CheckpointId:
        interval = day(self.model.days[self.model.head] + 1)
        begun = begin(self.deployment, self.deployment.pipeline(NAME), interval, "test")
        assert not begun.already_completed
        return begun.checkpoint_id

    def _publish(self, number: CheckpointId, changes: list[tuple[str, int]]) -> None:
        keys, values = [key for key, _ in changes], [value for _, value in changes]
        events = pa.table({"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.int64())})
        publish_here(self.deployment, self.deployment.pipeline(NAME), number, events)

    @rule()
    def checkpoint(self) -> None:
        number = self._begin()
        self._publish(number, self.model.changes)
        register(self.deployment, self.deployment.pipeline(NAME), number)
        self.model.checkpoint(number)
        self._is_right(number)

    @precondition(lambda self: self.model.head is not None)
    @rule(form=st.sampled_from(["canonical", "native"]), key=st.uuids())
    def savepoint(self, form: str, key: object) -> None:
        pipeline = self.deployment.pipeline(NAME)
        begun = begin_savepoint(
            self.deployment, pipeline, format=form, target=None, note="", owner="test", key=f"{key}"
        )
        publish_here(self.deployment, pipeline, begun.checkpoint_id)
        register(self.deployment, pipeline, begun.checkpoint_id)
        self.model.savepoint(begun.checkpoint_id)
        self._is_right(begun.checkpoint_id)

    @precondition(lambda self: self.model.snapshots)
    @rule(which=st.integers(0, 99), parallelism=st.sampled_from([1, 2, 3, 5]), claims=st.booleans())
    def restore(self, which: int, parallelism: int, claims: bool) -> None:
        records = self._records()
        chosen = records[which % len(records)]
        claim = ClaimMode.CLAIM if claims and chosen.owner is Owner.USER else ClaimMode.NO_CLAIM
        pipeline = self.deployment.pipeline(NAME)
        plan = plan_restore(self.deployment, pipeline, str(chosen.checkpoint_id), parallelism, claim)
        apply_restore(self.deployment, pipeline, plan, "test")
        self.model.head, self.model.changes = chosen.checkpoint_id, []

    # -- what goes wrong ---------------------------------------------------------------------

    @rule(step=st.sampled_from(["begun", "planned", "published", "given up"]))
    def crash(self, step: str) -> None:
        """Take a run that ends at some point. Its changes are applied again by the next run."""
        number = self._begin()
        if step in ("planned", "published"):
            assert plan_snapshot(self.deployment, self.deployment.pipeline(NAME), number) is not None
        if step == "published":
            self._publish(number, self.model.changes)
        if step == "given up":
            abort(self.deployment, NAME, number, "test")

    @rule()
    def take_over(self) -> None:
        """Let another run do the same work. The run that it overtook comes too late."""
        first, changes = self._begin(), list(self.model.changes)
        self._publish(first, changes)
        self.checkpoint()
        with pytest.raises(ConflictError):
            register(self.deployment, self.deployment.pipeline(NAME), first)

    @precondition(lambda self: self.model.head is not None)
    @rule()
    def lose_the_catalog(self) -> None:
        """Rebuild the catalog from storage alone: nothing that was registered is missing. The head after a restore
        is lost if no checkpoint was built on it, so a checkpoint is taken before, without failed attempts."""
        self.clean()
        self.checkpoint()
        before = {r.checkpoint_id for r in self._records()}
        self.catalogs += 1
        self.deployment = replace(self.deployment, catalog_url=f"sqlite:///{self.root}/catalog-{self.catalogs}.db")
        apply_rebuild(self.deployment, plan_rebuild(self.deployment))
        assert {r.checkpoint_id for r in self._records()} == before
        assert self.deployment.catalog().head(NAME).head == self.model.head

    # -- cleaning up -------------------------------------------------------------------------

    @precondition(lambda self: self.model.snapshots)
    @rule(which=st.integers(0, 99))
    def dispose(self, which: int) -> None:
        mine = [r for r in self._records() if r.owner is Owner.USER and r.checkpoint_id != self.model.head]
        pending = {r.base for r in self._records(CheckpointState.PENDING)}
        mine = [r for r in mine if r.checkpoint_id not in pending]
        if mine:
            dispose(self.deployment, NAME, mine[which % len(mine)].checkpoint_id)

    @rule()
    def clean(self) -> None:
        for record_ in self._records(CheckpointState.PENDING):
            abort(self.deployment, NAME, record_.checkpoint_id, "test")
        orphans(self.deployment, NAME, grace_ms=0, dry_run=False, force=True)
        retire(self.deployment, NAME)
        collect_garbage(self.deployment, NAME)
        needed: set[str] = set()
        for each in self._records():
            self._is_right(each.checkpoint_id)
            opened = resolve(self.deployment, f"{NAME}/{each.checkpoint_id}")
            assert opened.manifest is not None
            places = [
                local_path(f.path) if ":" in f.path else f"{local_path(each.directory)}/{f.path}"
                for f in opened.manifest.files
            ]
            needed |= {*places, f"{local_path(each.directory)}/_metadata"}
        assert {str(path) for path in Path(self.deployment.storage_root).rglob("*") if path.is_file()} == needed

    def _is_right(self, number: int) -> None:
        opened = resolve(self.deployment, f"{NAME}/{number}")
        assert verify(opened, scratch=self.deployment.work_directory).problems == ()
        rows = opened.to_arrow("total", scratch=self.deployment.work_directory).to_pylist()
        assert len(rows) == len({row["key"] for row in rows})
        assert {row["key"]: row["value"] for row in rows} == self.model.snapshots[number]


EXAMPLES, STEPS = rounds(10, 60), rounds(15, 40)


@pytest.mark.timeout(3600)
class TestEverything(Everything.TestCase):
    settings = settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, suppress_health_check=list(HealthCheck)
    )

    def runTest(self) -> None:  # noqa: N802 - unittest's own name of it
        super().runTest()
        record("G1", "histories against a dict", EXAMPLES)
