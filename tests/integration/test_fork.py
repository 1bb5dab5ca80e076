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
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointRecord, CheckpointState, Owner
from statelib.savepoints.diff.states import Diff
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.savepoints.verification import verify_at
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


def write(here: Deployment, name: str, backend: str, strategy: str, amount: str = "long") -> None:
    text = PIPELINE.format(name=name, backend=backend, strategy=strategy, amount=amount)
    (Path(here.pipelines_directory) / f"{name}.yaml").write_text(text)


@pytest.fixture
def place() -> str:
    """Where a test without parameters of its own keeps its state."""
    return "files"


@pytest.fixture
def here(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    here = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    if place == "s3":
        here = replace(here, storage_root=f"s3://{request.getfixturevalue('bucket')}/state")
    return here


def days(here: Deployment, name: str, first: int, last: int, amount: int = 1) -> None:
    for number in range(first, last + 1):
        shops = [f"shop-{n}" for n in range(SHOPS)]
        checkpoint_of(here, name, number, pa.table({"shop": shops, "amount": pa.array([amount] * SHOPS, pa.int64())}))


def opened(here: Deployment, name: str, number: int) -> Checkpoint:
    directory = here.catalog().get(PipelineName(name), CheckpointId(number)).directory
    return open_checkpoint(directory, own=True, storage_root=here.storage_root)


def totals(here: Deployment, name: str, number: int) -> set[int]:
    table = opened(here, name, number).to_arrow("total", here.work_directory)
    assert table.num_rows == SHOPS
    return set(table["value"].to_pylist())


def forked(here: Deployment, source: str, number: int, name: str) -> CheckpointRecord:
    record = here.catalog().get(PipelineName(source), CheckpointId(number))
    return fork(here, here.pipeline(name), record, "test")


def clean(here: Deployment) -> None:
    retire(here)
    collect_garbage(here)
    orphans(here, dry_run=False)


def is_whole(here: Deployment) -> None:
    for record in here.catalog().list(None, {CheckpointState.COMPLETED}):
        found = verify_at(record.directory, own=True, storage_root=here.storage_root, scratch=here.work_directory)
        assert found.problems == ()
    assert needed(here) <= stored(here)


@pytest.mark.parametrize(("place", "backend", "strategy"), WAYS)
def test_a_fork_lives_on_without_its_source(here: Deployment, backend: str, strategy: str) -> None:
    write(here, "trunk", backend, strategy)
    write(here, "branch", backend, strategy)
    days(here, "trunk", 1, 3)
    before = stored(here)
    record = forked(here, "trunk", 3, "branch")
    assert (record.checkpoint_id, record.owner, record.note) == (1, Owner.SYSTEM, "fork of trunk/3")
    assert stored(here) - before == {f"{record.directory}/_metadata"}, "nothing is copied"
    assert totals(here, "branch", 1) == {3}
    (same,) = Diff(opened(here, "trunk", 3), opened(here, "branch", 1), here.work_directory).states
    assert not same.different
    data = min(uri for uri in before if "/chk-3/" in uri and not uri.endswith("_metadata"))
    assert why(here, data).needed_by == ("branch/1", "trunk/3")

    days(here, "trunk", 4, 6)
    clean(here)
    assert here.catalog().get(PipelineName("trunk"), CheckpointId(3)).state is CheckpointState.DELETED
    assert why(here, data).needed_by == ("branch/1",)
    is_whole(here)
    assert totals(here, "branch", 1) == {3}

    days(here, "branch", 4, 5, amount=100)
    assert (totals(here, "branch", 3), totals(here, "trunk", 6)) == ({203}, {6})
    (apart,) = Diff(opened(here, "trunk", 6), opened(here, "branch", 3), here.work_directory).states
    assert apart.different
    clean(here)
    is_whole(here)
    assert (totals(here, "branch", 3), totals(here, "trunk", 6)) == ({203}, {6})
    clean(here)
    assert stored(here) == needed(here)


@pytest.mark.parametrize("backend", ["heap", "rocksdb"])
def test_a_fork_continues_the_log_of_its_source(here: Deployment, backend: str) -> None:
    for name in ("trunk", "branch"):
        write(here, name, backend, f"changelog, {MERGING}")
    days(here, "trunk", 1, 3)
    forked(here, "trunk", 3, "branch")
    days(here, "branch", 4, 5, amount=100)
    manifest = opened(here, "branch", 3).manifest
    assert manifest is not None
    assert {file.path.split("/")[-3] for file in manifest.files} == {"trunk", "branch"}
    days(here, "trunk", 4, 5)
    clean(here)
    is_whole(here)
    assert (totals(here, "branch", 3), totals(here, "trunk", 5)) == ({203}, {5})


def test_the_gate_and_a_fork_of_a_fork(here: Deployment) -> None:
    for name in ("trunk", "branch", "twig"):
        write(here, name, "rocksdb", "incremental")
    days(here, "trunk", 1, 1)
    forked(here, "trunk", 1, "branch")
    branch = here.pipeline("branch")
    begun = begin(here, branch, day(2), "test").checkpoint_id
    publish_here(here, branch, begun)
    assert check(here, branch, begun).passed
    register(here, branch, begun)
    shared = [f.path for f in opened(here, "branch", 2).manifest.files if "/trunk/shared/" in f.path]
    assert shared, "the base's files are referred to, though they are the source's"
    forked(here, "branch", 2, "twig")
    days(here, "trunk", 2, 4)
    days(here, "branch", 3, 5)
    clean(here)
    is_whole(here)
    assert totals(here, "twig", 1) == {1}


@pytest.mark.parametrize(("backend", "form"), [("heap", "canonical"), ("rocksdb", "native")])
def test_a_savepoint_may_be_forked_and_then_disposed_of(here: Deployment, backend: str, form: str) -> None:
    write(here, "trunk", backend, "canonical")
    write(here, "branch", "rocksdb", "incremental")
    days(here, "trunk", 1, 2)
    trunk = here.pipeline("trunk")
    saved = begin_savepoint(here, trunk, format=form, target=None, note="", owner="t", key="k").checkpoint_id
    publish_here(here, trunk, saved)
    register(here, trunk, saved)
    forked(here, "trunk", saved, "branch")
    dispose(here, PipelineName("trunk"), saved)
    clean(here)
    is_whole(here)
    days(here, "branch", 3, 3)
    assert totals(here, "branch", 2) == {3}
    paths = [f.path for f in opened(here, "branch", 2).manifest.files]
    assert not [path for path in paths if "savepoints" in path], "a user's files are not shared"
    clean(here)
    clean(here)
    assert stored(here) == needed(here)


def test_what_cannot_be_forked_is_said(here: Deployment, tmp_path: Path) -> None:
    write(here, "trunk", "rocksdb", "full")
    write(here, "branch", "rocksdb", "full")
    write(here, "other", "rocksdb", "full", amount="double")
    write(here, "light", "heap", "canonical")
    days(here, "trunk", 1, 2)
    wrong: list[tuple[str, int, str]] = [
        ("trunk", 1, "same-pipeline"),
        ("other", 1, "state-schema-changed"),
        ("light", 1, "backend-changed"),
    ]
    for name, number, kind in wrong:
        with pytest.raises(InvalidRequestError) as caught:
            forked(here, "trunk", number, name)
        assert caught.value.kind == kind
    trunk = here.pipeline("trunk")
    pending = begin(here, trunk, day(3), "test").checkpoint_id
    with pytest.raises(StatelibError) as unfinished:
        forked(here, "trunk", pending, "branch")
    assert unfinished.value.kind == "not-completed"
    target = f"file://{tmp_path}/mine"
    saved = begin_savepoint(here, trunk, format="native", target=target, note="", owner="t", key="k").checkpoint_id
    publish_here(here, trunk, saved)
    register(here, trunk, saved)
    with pytest.raises(InvalidRequestError) as outside:
        forked(here, "trunk", saved, "branch")
    assert outside.value.kind == "outside-root"
    forked(here, "trunk", 2, "branch")
    with pytest.raises(ConflictError) as again:
        forked(here, "trunk", 2, "branch")
    assert again.value.kind == "has-history"


def test_the_command_line_forks(here: Deployment) -> None:
    write(here, "trunk", "rocksdb", "full")
    write(here, "branch", "rocksdb", "full")
    days(here, "trunk", 1, 2)
    told = said(here, "pipelines", "fork", "trunk/2", "branch")
    assert told.splitlines()[0] == "the head of branch is branch/1, a fork of trunk/2"
    assert "branch.checkpoint that starts at 2013-01-03" in told
    assert "has a history already" in refused(here, "pipelines", "fork", "trunk/2", "branch")
    said(here, "verify", "-p", "branch")
    assert "fork of trunk/2" in said(here, "checkpoints", "show", "branch/1")
    said(here, "checkpoints", "diff", "trunk/2", "branch/1")


def test_damage_ends_a_fork_and_leaves_no_trace(here: Deployment) -> None:
    write(here, "trunk", "heap", "canonical")
    write(here, "branch", "heap", "canonical")
    days(here, "trunk", 1, 1)
    data = next(uri for uri in stored(here) if not uri.endswith("_metadata"))
    path = Path(data.removeprefix("file://"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptStateError) as caught:
        forked(here, "trunk", 1, "branch")
    assert caught.value.kind == "damaged-snapshot"
    path.write_bytes(whole)
    clean(here)
    assert stored(here) == needed(here)
    assert forked(here, "trunk", 1, "branch").checkpoint_id == 2
    is_whole(here)
