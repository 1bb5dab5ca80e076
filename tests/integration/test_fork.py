"""A new pipeline begins with another one's checkpoint: nothing is copied, and neither can break the other."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import ConflictError, CorruptStateError, InvalidRequestError, StatelibError
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.cleanup.explanation import why
from statelib.flows.cleanup.garbage import collect_garbage, dispose
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.savepoint.fork import fork
from statelib.flows.savepoint.forked_metadata import forked as forked_metadata
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.registry import new_attempt
from tests.integration.garbage import needed, stored
from tests.integration.shop_cli import refused, said
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

PIPELINE = """\
name: {name}
source: {{path: "{{data}}/{{start}}-{{end}}", columns: {{shop: string, amount: {amount}}}}}
key: [shop]
states:
  total: {{kind: value, value: {{agg: sum, of: amount}}}}
backend: {backend}
parallelism: 2
checkpoint: {{strategy: {strategy}, inline_threshold_bytes: 0, retain: {{count: 1}}}}
"""
SHOPS = 50
MERGING = "file_merging: {enabled: true}"
WAYS = [
    ("files", "heap", "canonical"),
    ("files", "rocksdb", "full"),
    ("files", "rocksdb", "incremental"),
    ("s3", "rocksdb", "incremental"),
    ("files", "rocksdb", f"incremental, {MERGING}"),
    ("s3", "rocksdb", f"incremental, {MERGING}"),
]


def write(deployment: Deployment, name: str, backend: str, strategy: str, amount: str = "long") -> None:
    text = PIPELINE.format(name=name, backend=backend, strategy=strategy, amount=amount)
    (Path(deployment.pipelines_directory) / f"{name}.yaml").write_text(text)


@pytest.fixture
def place() -> str:
    """Return the kind of storage for tests that have no parameter for it."""
    return "files"


@pytest.fixture
def deployment(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    if place == "s3":
        deployment = replace(deployment, storage_root=f"s3://{request.getfixturevalue('bucket')}/state")
    return deployment


def days(deployment: Deployment, name: str, first: int, last: int, amount: int = 1) -> None:
    for number in range(first, last + 1):
        shops = [f"shop-{n}" for n in range(SHOPS)]
        checkpoint_of(
            deployment, name, number, pa.table({"shop": shops, "amount": pa.array([amount] * SHOPS, pa.int64())})
        )


def opened(deployment: Deployment, name: str, number: int) -> Checkpoint:
    directory = deployment.catalog().get(PipelineName(name), CheckpointId(number)).directory
    return open_checkpoint(directory, own=True, storage_root=deployment.storage_root)


def totals(deployment: Deployment, name: str, number: int) -> set[int]:
    table = opened(deployment, name, number).to_arrow("total", deployment.work_directory)
    assert table.num_rows == SHOPS
    return set(table["value"].to_pylist())


def forked(deployment: Deployment, source: str, number: int, name: str) -> CheckpointRecord:
    record = deployment.catalog().get(PipelineName(source), CheckpointId(number))
    return fork(deployment, deployment.pipeline(name), record, "test")


def clean(deployment: Deployment) -> None:
    retire(deployment)
    collect_garbage(deployment)
    orphans(deployment, dry_run=False)


def is_whole(deployment: Deployment) -> None:
    for record in deployment.catalog().list(None, {CheckpointState.COMPLETED}):
        verification = verify_at(
            record.directory, own=True, storage_root=deployment.storage_root, scratch=deployment.work_directory
        )
        assert verification.problems == ()
    assert needed(deployment) <= stored(deployment)


@pytest.mark.parametrize(("place", "backend", "strategy"), WAYS)
def test_a_fork_outlives_its_source(deployment: Deployment, backend: str, strategy: str) -> None:
    write(deployment, "trunk", backend, strategy)
    write(deployment, "branch", backend, strategy)
    days(deployment, "trunk", 1, 3)
    before = stored(deployment)
    record = forked(deployment, "trunk", 3, "branch")
    assert (record.checkpoint_id, record.owner, record.note) == (1, Owner.SYSTEM, "fork of trunk/3")
    assert stored(deployment) - before == {f"{record.directory}/_metadata"}, "nothing is copied"
    assert totals(deployment, "branch", 1) == {3}
    (same,) = Diff(opened(deployment, "trunk", 3), opened(deployment, "branch", 1), deployment.work_directory).states
    assert not same.different
    data = min(uri for uri in before if "/chk-3/" in uri and not uri.endswith("_metadata"))
    assert why(deployment, data).needed_by == ("branch/1", "trunk/3")

    days(deployment, "trunk", 4, 6)
    clean(deployment)
    assert deployment.catalog().get(PipelineName("trunk"), CheckpointId(3)).state is CheckpointState.DELETED
    assert why(deployment, data).needed_by == ("branch/1",)
    is_whole(deployment)
    assert totals(deployment, "branch", 1) == {3}

    days(deployment, "branch", 4, 5, amount=100)
    assert (totals(deployment, "branch", 3), totals(deployment, "trunk", 6)) == ({203}, {6})
    (apart,) = Diff(opened(deployment, "trunk", 6), opened(deployment, "branch", 3), deployment.work_directory).states
    assert apart.different
    clean(deployment)
    is_whole(deployment)
    assert (totals(deployment, "branch", 3), totals(deployment, "trunk", 6)) == ({203}, {6})
    clean(deployment)
    assert stored(deployment) == needed(deployment)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_fork_continues_the_log_of_its_source(deployment: Deployment, backend: str) -> None:
    for name in ("trunk", "branch"):
        write(deployment, name, backend, f"changelog, {MERGING}")
    days(deployment, "trunk", 1, 3)
    forked(deployment, "trunk", 3, "branch")
    days(deployment, "branch", 4, 5, amount=100)
    manifest = opened(deployment, "branch", 3).manifest
    assert manifest is not None
    assert {file.path.split("/")[-3] for file in manifest.files} == {"trunk", "branch"}
    days(deployment, "trunk", 4, 5)
    clean(deployment)
    is_whole(deployment)
    assert (totals(deployment, "branch", 3), totals(deployment, "trunk", 5)) == ({203}, {5})


def test_a_fork_of_a_fork_passes_the_gate(deployment: Deployment) -> None:
    for name in ("trunk", "branch", "twig"):
        write(deployment, name, "rocksdb", "incremental")
    days(deployment, "trunk", 1, 1)
    forked(deployment, "trunk", 1, "branch")
    branch = deployment.pipeline("branch")
    begun = begin(deployment, branch, day(2), "test").checkpoint_id
    publish_here(deployment, branch, begun)
    assert check(deployment, branch, begun).passed
    register(deployment, branch, begun)
    shared = [f.path for f in opened(deployment, "branch", 2).manifest.files if "/trunk/shared/" in f.path]
    assert shared, "the base's files are referred to, though they are the source's"
    forked(deployment, "branch", 2, "twig")
    days(deployment, "trunk", 2, 4)
    days(deployment, "branch", 3, 5)
    clean(deployment)
    is_whole(deployment)
    assert totals(deployment, "twig", 1) == {1}


@pytest.mark.parametrize(("backend", "form"), [("heap", "canonical"), ("rocksdb", "native")])
def test_a_forked_savepoint_can_be_disposed_of(deployment: Deployment, backend: str, form: str) -> None:
    write(deployment, "trunk", backend, "canonical")
    write(deployment, "branch", "rocksdb", "incremental")
    days(deployment, "trunk", 1, 2)
    trunk = deployment.pipeline("trunk")
    saved = begin_savepoint(deployment, trunk, format=form, target=None, note="", owner="t", key="k").checkpoint_id
    publish_here(deployment, trunk, saved)
    register(deployment, trunk, saved)
    forked(deployment, "trunk", saved, "branch")
    dispose(deployment, PipelineName("trunk"), saved)
    clean(deployment)
    is_whole(deployment)
    days(deployment, "branch", 3, 3)
    assert totals(deployment, "branch", 2) == {3}
    paths = [f.path for f in opened(deployment, "branch", 2).manifest.files]
    assert not [path for path in paths if "savepoints" in path], "a user's files are not shared"
    clean(deployment)
    clean(deployment)
    assert stored(deployment) == needed(deployment)


def test_an_impossible_fork_is_refused(deployment: Deployment, tmp_path: Path) -> None:
    write(deployment, "trunk", "rocksdb", "full")
    write(deployment, "branch", "rocksdb", "full")
    write(deployment, "other", "rocksdb", "full", amount="double")
    write(deployment, "light", "heap", "canonical")
    days(deployment, "trunk", 1, 2)
    wrong: list[tuple[str, int, str]] = [
        ("trunk", 1, "same-pipeline"),
        ("other", 1, "state-schema-changed"),
        ("light", 1, "backend-changed"),
    ]
    for name, number, kind in wrong:
        with pytest.raises(InvalidRequestError) as caught:
            forked(deployment, "trunk", number, name)
        assert caught.value.kind == kind
    trunk = deployment.pipeline("trunk")
    pending = begin(deployment, trunk, day(3), "test").checkpoint_id
    with pytest.raises(StatelibError) as unfinished:
        forked(deployment, "trunk", pending, "branch")
    assert unfinished.value.kind == "not-completed"
    target = f"file://{tmp_path}/mine"
    saved = begin_savepoint(
        deployment, trunk, format="native", target=target, note="", owner="t", key="k"
    ).checkpoint_id
    publish_here(deployment, trunk, saved)
    register(deployment, trunk, saved)
    with pytest.raises(InvalidRequestError) as outside:
        forked(deployment, "trunk", saved, "branch")
    assert outside.value.kind == "outside-root"
    forked(deployment, "trunk", 2, "branch")
    with pytest.raises(ConflictError) as again:
        forked(deployment, "trunk", 2, "branch")
    assert again.value.kind == "has-history"


def test_a_fork_can_be_made_on_the_command_line(deployment: Deployment) -> None:
    write(deployment, "trunk", "rocksdb", "full")
    write(deployment, "branch", "rocksdb", "full")
    days(deployment, "trunk", 1, 2)
    output = said(deployment, "pipelines", "fork", "trunk/2", "branch")
    assert output.splitlines()[0] == "the head of branch is branch/1, a fork of trunk/2"
    assert "branch.checkpoint that starts at 2013-01-03" in output
    assert "has a history already" in refused(deployment, "pipelines", "fork", "trunk/2", "branch")
    said(deployment, "verify", "-p", "branch")
    assert "fork of trunk/2" in said(deployment, "checkpoints", "show", "branch/1")
    said(deployment, "checkpoints", "diff", "trunk/2", "branch/1")


def test_a_fork_of_a_correction_corrects_nothing_itself(deployment: Deployment) -> None:
    write(deployment, "trunk", "heap", "canonical")
    days(deployment, "trunk", 1, 2)
    record = deployment.catalog().get(PipelineName("trunk"), CheckpointId(2))
    source = deployment.open(record)
    assert source.manifest is not None
    corrected = replace(source, manifest=replace(source.manifest, mends=day(1)))
    _, manifest = forked_metadata(corrected, record, new_attempt(), None)
    assert (manifest.mends, manifest.position.interval) == (None, day(2))


def test_a_fork_of_a_damaged_snapshot_fails_and_leaves_nothing(deployment: Deployment) -> None:
    write(deployment, "trunk", "heap", "canonical")
    write(deployment, "branch", "heap", "canonical")
    days(deployment, "trunk", 1, 1)
    data = next(uri for uri in stored(deployment) if not uri.endswith("_metadata"))
    path = Path(data.removeprefix("file://"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptStateError) as caught:
        forked(deployment, "trunk", 1, "branch")
    assert caught.value.kind == "damaged-snapshot"
    path.write_bytes(whole)
    clean(deployment)
    assert stored(deployment) == needed(deployment)
    assert forked(deployment, "trunk", 1, "branch").checkpoint_id == 2
    is_whole(deployment)
