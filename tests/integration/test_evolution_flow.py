"""A pipeline file that changes between runs, through the flows: states migrate, move, go; names and uids change."""

import hashlib
import logging
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.formats.manifest.trailer import append_manifest
from statelib.formats.metadata.metadata_file import encode_metadata
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.ids import CheckpointId
from statelib.model.record import CheckpointRecord, ClaimMode, Owner
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

FILE = """\
name: tours
source: {path: "{data}/{start}-{end}", columns: {shop: string, item: string, amount: INT}}
key: [shop]
states:
  total: {kind: value, fields: {sold: {agg: count}, highest: {agg: max, of: amount}, mean: {agg: avg, of: amount}}}
  per_item: {kind: map, user_key: item, value: {agg: max, of: amount}}
  spread: {kind: aggregating, value: {agg: histogram, of: amount, bounds: [5, 50]}}
backend: BACKEND
parallelism: 2
checkpoint: {strategy: STRATEGY, inline_threshold_bytes: 0}
"""
WAYS = [("heap", "full"), ("heap", "canonical"), ("rocksdb", "full"), ("rocksdb", "incremental")]


WINDOWED = """\
name: hours
source: {path: "{data}/{start}-{end}", columns: {shop: string, at: instant}}
key: [shop]
states: {sold: {kind: reducing, value: {agg: count}, window: {time: at, tumbling: 60m, retain: 1d}}}
backend: heap
"""


class Shop:
    """A deployment with one pipeline file."""

    def __init__(self, root: Path, backend: str, strategy: str) -> None:
        (root / "pipelines").mkdir()
        self.path = root / "pipelines" / "tours.yaml"
        self.text = FILE.replace("BACKEND", backend).replace("STRATEGY", strategy).replace("INT", "int")
        self.path.write_text(self.text)
        self.deployment = new_deployment(root, root, root / "pipelines")

    def change(self, *changes: tuple[str, str], name: str = "tours") -> None:
        for old, new in changes:
            assert old in self.text
            self.text = self.text.replace(old, new)
        self.path.unlink()
        self.path = self.path.with_name(f"{name}.yaml")
        self.path.write_text(self.text)

    def run(self, number: int, name: str = "tours") -> int:
        type_ = pa.int64() if "amount: long" in self.text else pa.int32()
        columns = {
            "shop": [f"shop-{n % 30}" for n in range(60)],
            "item": [f"item-{n % 7}" for n in range(60)],
            "amount": pa.array([n * number for n in range(60)], type_),
        }
        if "amount: long" in self.text:
            columns["amount"] = pa.array([n * number + 2**40 for n in range(60)], type_)
        checkpoint_id = checkpoint_of(self.deployment, name, number, pa.table(columns))
        assert (
            verify(resolve(self.deployment, f"{name}/{checkpoint_id}"), scratch=self.deployment.work_directory).problems
            == ()
        )
        return checkpoint_id

    def state(self, state: str, number: int, name: str = "tours") -> Mapping[str, object]:
        table = resolve(self.deployment, f"{name}/{number}").to_arrow(state, self.deployment.work_directory)
        return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))

    def restore(self, checkpoint: str, claim: ClaimMode = ClaimMode.NO_CLAIM, name: str = "tours") -> None:
        pipeline = self.deployment.pipeline(name)
        apply_restore(
            self.deployment, pipeline, plan_restore(self.deployment, pipeline, checkpoint, None, claim), "test"
        )


@pytest.fixture(params=WAYS, ids="-".join)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    return Shop(tmp_path, *request.param)


@pytest.fixture
def one(tmp_path: Path) -> Shop:
    return Shop(tmp_path, "rocksdb", "incremental")


def test_a_newer_pipeline_file_continues_from_older_state(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.run(1)
    before, best = shop.state("total", 1), shop.state("per_item", 1)
    shop.change(
        ("amount: int", "amount: long"),
        ("sold: {agg: count}, highest: {", "top: {renamed_from: highest, "),
        ("  per_item: {", "  best: {renamed_from: [older, per_item], "),
        ("  spread:", "  lowest: {kind: reducing, value: {agg: min, of: amount}}\n  spread:"),
    )
    with caplog.at_level(logging.WARNING):
        assert shop.run(2) == 2
    messages = " ".join(record.getMessage() for record in caplog.records)
    assert (
        "state 'total': COMPATIBLE_AFTER_MIGRATION (field 'top' was called 'highest'; field 'sold' (long)" in messages
    )
    assert (
        "state 'best': COMPATIBLE_AFTER_MIGRATION (was called 'per_item'; the value: int widened to long)" in messages
    )
    assert "state 'lowest': COMPATIBLE_AS_IS (new: starts empty)" in messages
    _pass_gate(shop, 2)
    after = shop.state("total", 2)
    assert after.keys() == before.keys()
    for key, row in after.items():
        assert row["top"] >= 2**40
        assert row["mean"]["count"] == before[key]["mean"]["count"] + 2
    assert shop.state("best", 2).keys() == best.keys()
    assert min(shop.state("lowest", 2).values()) == 2**40
    schema = open_checkpoint(f"{shop.deployment.storage_root}/tours/chk-2", own=True).schema()
    assert [f.name for f in schema.state("total").value_type.fields] == ["top", "mean"]


def test_without_events_migrated_entries_equal_the_old_ones(shop: Shop) -> None:
    shop.run(1)
    before, best = shop.state("total", 1), shop.state("per_item", 1)
    shop.change(
        ("amount: int", "amount: long"),
        ("sold: {agg: count}, highest: {", "first: {agg: min, of: item}, top: {renamed_from: highest, "),
        ("  per_item: {", "  best: {renamed_from: [older, per_item], "),
    )
    types = {"shop": pa.string(), "item": pa.string(), "amount": pa.int64()}
    checkpoint_of(shop.deployment, "tours", 2, pa.schema(types).empty_table())
    expected = {key: {"first": None, "top": row["highest"], "mean": row["mean"]} for key, row in before.items()}
    assert shop.state("total", 2) == expected
    assert shop.state("best", 2) == best
    _pass_gate(shop, 2)


def test_files_of_migrated_states_are_not_referred_to_again(one: Shop) -> None:
    one.run(1)
    one.change(("amount: int", "amount: long"))
    one.run(2)
    first, second = (open_checkpoint(f"{one.deployment.storage_root}/tours/chk-{n}", own=True).manifest for n in (1, 2))
    assert first is not None
    assert second is not None
    assert not {f.path for f in first.files} & {f.path for f in second.files}
    one.change(("  spread:", "  lowest: {kind: reducing, value: {agg: min, of: amount}}\n  spread:"))
    one.run(3)
    third = open_checkpoint(f"{one.deployment.storage_root}/tours/chk-3", own=True).manifest
    assert third is not None
    assert {f.path for f in second.files} & {f.path for f in third.files}, "a new state changes no file"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            ("bounds: [5, 50]", "bounds: [5, 60]"),
            "state 'spread'.*expected histogram with bounds .*60.*found histogram",
        ),
        (("agg: avg, of", "agg: sum, of"), "state 'total'.*field 'mean': expected long, found row<sum"),
        (("highest:", "largest:"), "state 'total'.*field 'largest'.*'highest' of the same type.*renamed_from: highest"),
        (("  spread:", "  other:"), "stored state 'spread'"),
        (("parallelism: 2", "parallelism: 2\nmax_parallelism: 64"), "max_parallelism 128.*has 64"),
        (("key: [shop]", "key: [shop, item]"), "the key: .*tuple<string, string>"),
    ],
)
def test_an_incompatible_pipeline_file_is_refused_before_anything_is_written(
    one: Shop, change: tuple[str, str], message: str
) -> None:
    one.run(1)
    pending = begin(one.deployment, one.deployment.pipeline("tours"), day(2), "test").checkpoint_id
    before = _tree(one.deployment)
    one.change(change)
    pipeline = one.deployment.pipeline("tours")
    for refused in (
        lambda: begin(one.deployment, pipeline, day(2), "test"),
        lambda: plan_snapshot(one.deployment, pipeline, pending),
        lambda: plan_restore(one.deployment, pipeline, "1", None, ClaimMode.NO_CLAIM),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            refused()
    assert _tree(one.deployment) == before


def test_a_state_is_dropped_only_if_the_file_allows_it(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    shop.run(1)
    shop.change(("  spread: {kind: aggregating, value: {agg: histogram, of: amount, bounds: [5, 50]}}\n", ""))
    pipeline = shop.deployment.pipeline("tours")
    with pytest.raises(InvalidRequestError, match="'spread'") as caught:
        plan_restore(shop.deployment, pipeline, "1", None, ClaimMode.NO_CLAIM)
    assert caught.value.kind == "non-restored-state"
    plan = plan_restore(shop.deployment, pipeline.allowing_non_restored_state(), "1", None, ClaimMode.NO_CLAIM)
    assert plan.non_restored == ("state 'spread' (aggregating<array<long>, void>), 30 entries",)
    assert "- **not restored**: state 'spread'" in plan.describe()
    assert "- state 'total': COMPATIBLE_AS_IS" in plan.describe()
    shop.change(("key: [shop]", "key: [shop]\nallow_non_restored_state: true"))
    with caplog.at_level(logging.WARNING):
        shop.run(2)
    messages = [
        r.getMessage() for r in caplog.records if "state 'spread' is not restored: key groups" in r.getMessage()
    ]
    assert len(messages) == 2, "two subtasks"
    schema = open_checkpoint(f"{shop.deployment.storage_root}/tours/chk-2", own=True).schema()
    assert [d.name for d in schema.states] == ["total", "per_item"]


def test_a_manifest_without_bounds_of_accumulators_is_read(one: Shop) -> None:
    """A manifest of the first version of statelib has no bounds. Changed bounds are detected only if the snapshot
    has them."""
    one.run(1)
    directory = Path(one.deployment.storage_root, "tours", "chk-1")
    opened = open_checkpoint(str(directory), own=True)
    assert opened.manifest is not None
    states = tuple(replace(d, meanings=()) for d in opened.manifest.schema.states)
    schema = replace(opened.manifest.schema, states=states)
    (directory / "_metadata").write_bytes(
        append_manifest(encode_metadata(opened.metadata), replace(opened.manifest, schema=schema))
    )
    one.change(("bounds: [5, 50]", "bounds: [5, 60]"))
    assert one.run(2) == 2


@pytest.mark.parametrize("renamed", ["renamed_from: tours", "uid: tours\nrenamed_from: [older, tours]"])
def test_a_renamed_pipeline_continues_its_history(shop: Shop, renamed: str) -> None:
    shop.run(1)
    shop.run(2)
    before = _tree(shop.deployment)
    sold = {key: row["sold"] for key, row in shop.state("total", 2).items()}
    shop.change(("name: tours", f"name: trips\n{renamed}"), name="trips")
    shop.run(3, "trips")
    newest = shop.deployment.catalog().head(shop.deployment.pipeline("trips").name).head
    assert {key: row["sold"] for key, row in shop.state("total", newest, "trips").items()} == {
        k: n + 2 for k, n in sold.items()
    }
    assert before.items() <= _tree(shop.deployment).items(), "the history it came from is as it was"
    shutil.rmtree(Path(shop.deployment.storage_root, "tours"))
    shop.run(4, "trips")


def test_a_pipeline_of_another_name_or_uid_is_refused(one: Shop) -> None:
    one.run(1)
    one.change(("name: tours", "name: tours\nuid: elsewhere"))
    with pytest.raises(InvalidRequestError, match=r"no operator has the uid 'elsewhere'.* there are tours") as caught:
        one.run(2)
    assert caught.value.kind == "other-operator"
    one.change(("uid: elsewhere", f"uid: elsewhere\nuid_hash: {operator_id('tours').hex()}"))
    one.run(2)
    one.change((f"\nuid_hash: {operator_id('tours').hex()}", "\nrenamed_from: [tours_before]"))
    with pytest.raises(InvalidRequestError, match="'elsewhere'"):
        one.run(3)


def test_other_operators_of_a_savepoint_are_non_restored_state(one: Shop, tmp_path: Path) -> None:
    one.run(1)
    record = _savepoint(one, tmp_path / "mine", "canonical")
    path = Path(record.directory.removeprefix("file://"), "_metadata")
    opened = open_checkpoint(record.directory, own=True)
    assert opened.manifest is not None
    (own,) = opened.operators
    metadata = replace(opened.metadata, operators=(replace(own, operator_id=operator_id("other")), own))
    copy = shutil.copytree(path.parent, tmp_path / "two")
    (copy / "_metadata").write_bytes(append_manifest(encode_metadata(metadata), opened.manifest))
    pipeline = one.deployment.pipeline("tours")
    with pytest.raises(InvalidRequestError, match=operator_id("other").hex()) as caught:
        plan_restore(one.deployment, pipeline, str(copy), None, ClaimMode.NO_CLAIM)
    assert caught.value.kind == "non-restored-state"
    one.change(("key: [shop]", "key: [shop]\nallow_non_restored_state: true"))
    plan = plan_restore(one.deployment, one.deployment.pipeline("tours"), str(copy), None, ClaimMode.NO_CLAIM)
    assert plan.non_restored == (f"operator {operator_id('other').hex()}",)
    one.restore(str(copy))
    one.run(2)
    assert len(open_checkpoint(f"{one.deployment.storage_root}/tours/chk-4", own=True).operators) == 1


@pytest.mark.parametrize("form", ["native", "canonical"])
def test_without_claim_the_source_is_unchanged_and_no_longer_needed_after_one_run(
    shop: Shop, tmp_path: Path, form: str
) -> None:
    shop.run(1)
    record = _savepoint(shop, tmp_path / "mine", form)
    before = _files(tmp_path / "mine")
    shop.run(2)
    shop.restore(str(next((tmp_path / "mine").iterdir())))
    again = shop.run(2)
    manifest = resolve(shop.deployment, f"tours/{again}").manifest
    assert manifest is not None
    assert (manifest.base, manifest.uploaded_bytes) == (record.checkpoint_id, sum(f.size_bytes for f in manifest.files))
    assert _files(tmp_path / "mine") == before
    assert shop.deployment.catalog().get(record.pipeline, record.checkpoint_id).owner is Owner.USER
    shutil.rmtree(tmp_path / "mine")
    assert verify(resolve(shop.deployment, f"tours/{again}"), scratch=shop.deployment.work_directory).problems == ()
    shop.run(3)


def test_a_claimed_savepoint_belongs_to_the_system(one: Shop, tmp_path: Path) -> None:
    one.run(1)
    record = _savepoint(one, tmp_path / "mine", "native")
    copy = shutil.copytree(record.directory.removeprefix("file://"), tmp_path / "copy")
    one.restore(str(copy), ClaimMode.CLAIM)
    head = one.deployment.catalog().head(record.pipeline).head
    assert head is not None
    assert one.deployment.catalog().get(record.pipeline, head).owner is Owner.SYSTEM
    assert one.deployment.catalog().get(record.pipeline, record.checkpoint_id).owner is Owner.USER


def _pass_gate(shop: Shop, number: int) -> None:
    """Assert that the gate passes. It compares growth and content with the migrated base, not with the stored one."""
    pipeline = shop.deployment.pipeline("tours")
    assert check(shop.deployment, pipeline, CheckpointId(number)).passed


def _savepoint(shop: Shop, target: Path, form: str) -> CheckpointRecord:
    pipeline = shop.deployment.pipeline("tours")
    saved = begin_savepoint(shop.deployment, pipeline, format=form, target=str(target), note="", owner="test", key="k")
    publish_here(shop.deployment, pipeline, saved.checkpoint_id)
    return register(shop.deployment, pipeline, saved.checkpoint_id)


def _files(root: Path) -> dict[str, str]:
    return {str(p): hashlib.sha256(p.read_bytes()).hexdigest() for p in root.rglob("*") if p.is_file()}


def _tree(deployment: Deployment) -> dict[str, str]:
    return _files(Path(deployment.storage_root))


def test_windows_do_not_change_their_size(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    file = tmp_path / "pipelines" / "hours.yaml"
    file.write_text(WINDOWED)
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    events = pa.table({"shop": ["a"], "at": pa.array([day(1).start_ms * 10**6], pa.timestamp("ns", "UTC"))})
    checkpoint_of(deployment, "hours", 1, events)
    file.write_text(WINDOWED.replace("60m", "1h"))
    checkpoint_of(deployment, "hours", 2, events)
    file.write_text(WINDOWED.replace("60m", "1d"))
    with pytest.raises(InvalidRequestError, match="windows: expected tumbling 1d, found tumbling 1h") as refused:
        begin(deployment, deployment.pipeline("hours"), day(3), "test")
    assert refused.value.kind == "state-schema-changed"
