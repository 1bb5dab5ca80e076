"""Side data of user functions through runs, a restore, rescaling, savepoints, forks and gc: on a file system and in a
bucket, in this process and on Spark."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.flows.checkpoint.publishing import publish
from statelib.flows.checkpoint.snapshot_plan import plan_snapshot
from statelib.flows.checkpoint.steps import abort, begin, check, register
from statelib.flows.cleanup.garbage import collect_garbage
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.cleanup.retention import retire
from statelib.flows.recovery.rebuild import apply_rebuild, plan_rebuild
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.fork import fork
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.views.anatomy import SideDataFacts, portrait
from statelib.flows.views.inspection import resolve
from statelib.flows.wiring import Deployment
from statelib.model.handles import ByteStreamStateHandle
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import CheckpointState, ClaimMode
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.verification.snapshots import verify
from statelib.spark.snapshot.driver import run_snapshot
from statelib.spark.snapshot.subtask.worker import Work, snapshot_subtask
from statelib.storage.uris import local_path
from tests.integration.garbage import needed, stored
from tests.integration.learning_functions import shops_of
from tests.integration.shop_cli import call
from tests.support.worlds import day, new_deployment, owned, publish_here

FUNCTIONS = "tests.integration.learning_functions"
PIPELINE = f"""\
name: {{name}}
source: {{{{path: "{{{{data}}}}/{{{{start:%Y-%m-%d}}}}/[!_]*.parquet", columns: {{{{shop: string}}}}}}}}
key: [shop]
states: {{{{seen: {{{{kind: value, fields: {{{{seen_before: boolean}}}}, function: "{FUNCTIONS}:update"}}}}}}}}
side_data: [model, days]
hooks: {{{{initialize_state: "{FUNCTIONS}:initialize_state"}}}}
backend: {{backend}}
parallelism: 2
checkpoint: {{{{strategy: {{strategy}}, retain: {{{{count: 2}}}}}}}}
"""
HEAP, ROCKSDB = ("heap", "canonical"), ("rocksdb", "incremental")
DAYS = {1: ["a", "b"], 2: ["c", "d", "a"], 3: [], 4: ["e", "f", "c"], 5: ["a"]}
"""The shops that have events, by day."""
Run = Callable[[CheckpointId, pa.Table], None]
"""A function that takes the snapshot of a checkpoint that has begun."""


@pytest.fixture(params=["files", "s3"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def deployment(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    deployment = new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")
    write(deployment, *HEAP)
    return (
        replace(deployment, storage_root=f"s3://{request.getfixturevalue('bucket')}/state")
        if place == "s3"
        else deployment
    )


def write(deployment: Deployment, backend: str, strategy: str, name: str = "learns", **replaced: str) -> None:
    text = PIPELINE.format(name=name, backend=backend, strategy=strategy)
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    (Path(deployment.pipelines_directory) / f"{name}.yaml").write_text(text)


def table(shops: list[str]) -> pa.Table:
    return pa.table({"shop": pa.array(shops, pa.string())})


def in_this_process(deployment: Deployment) -> Run:
    return lambda checkpoint_id, events: publish_here(deployment, deployment.pipeline("learns"), checkpoint_id, events)


def one_day(deployment: Deployment, number: int, run: Run | None = None, shops: list[str] | None = None) -> int:
    run = run or in_this_process(deployment)
    checkpoint_id = begin(deployment, deployment.pipeline("learns"), day(number), "test").checkpoint_id
    run(checkpoint_id, table(DAYS[number] if shops is None else shops))
    return register(deployment, deployment.pipeline("learns"), checkpoint_id).checkpoint_id


def restore(deployment: Deployment, path: str, parallelism: int | None = None) -> None:
    plan = plan_restore(deployment, deployment.pipeline("learns"), path, parallelism, ClaimMode.NO_CLAIM)
    apply_restore(deployment, deployment.pipeline("learns"), plan, "test")


def savepoint(deployment: Deployment, form: str, target: str | None = None, run: Run | None = None) -> Checkpoint:
    pipeline = deployment.pipeline("learns")
    begun = begin_savepoint(
        deployment, pipeline, format=form, target=target, note="", owner="t", key=f"{form} {target}"
    )
    (run or in_this_process(deployment))(begun.checkpoint_id, table([]))
    register(deployment, pipeline, begun.checkpoint_id)
    return opened(deployment, begun.checkpoint_id)


def opened(deployment: Deployment, checkpoint_id: int, name: str = "learns") -> Checkpoint:
    return resolve(deployment, f"{name}/{checkpoint_id}")


def models(checkpoint: Checkpoint) -> list[set[str]]:
    """Return the shops of each model, in the order of the key groups."""
    assert checkpoint.manifest is not None
    records = [part for part in checkpoint.manifest.side_data if part.name == "model"]
    read = checkpoint.reader().read
    return [shops_of(bytes(read(part.handle))) for part in sorted(records, key=lambda p: p.key_group_range.start)]


def all_shops(checkpoint: Checkpoint) -> set[str]:
    return set[str]().union(*models(checkpoint))


def files(checkpoint: Checkpoint) -> list[str]:
    """Return the file of each model, in the order of the key groups."""
    assert checkpoint.manifest is not None
    records = sorted(checkpoint.manifest.side_data, key=lambda part: part.key_group_range.start)
    return [p.handle.path for p in records if not isinstance(p.handle, ByteStreamStateHandle)]


def before(checkpoint: Checkpoint) -> dict[str, bool]:
    """Return by shop whether a model contained it at its last event."""
    return {row["key"]: row["value"]["seen_before"] for row in checkpoint.to_arrow("seen").to_pylist()}


def clean(deployment: Deployment) -> None:
    retire(deployment)
    collect_garbage(deployment)
    orphans(deployment, dry_run=False, force=True, grace_ms=0)


def is_whole(deployment: Deployment) -> None:
    """Assert that every checkpoint has its side data, and that there are no other files."""
    for record in deployment.catalog().list(None, {CheckpointState.COMPLETED}):
        assert verify(resolve(deployment, f"{record.pipeline}/{record.checkpoint_id}")).problems == ()
    assert needed(deployment) == {uri for uri in stored(deployment) if not uri.rpartition("/")[2].startswith(".")}


def story(deployment: Deployment, run: Run) -> None:
    """Run five days, gc, a restore of the second one, and rescaling from two subtasks to three and to one."""
    one_day(deployment, 1, run)
    second = one_day(deployment, 2, run)
    assert all_shops(opened(deployment, second)) == {"a", "b", "c", "d"}
    assert before(opened(deployment, second)) == {"a": True, "b": False, "c": False, "d": False}
    third = one_day(deployment, 3, run)
    assert files(opened(deployment, third)) == files(opened(deployment, second)), (
        "without events, nothing is written again"
    )
    one_day(deployment, 4, run)
    fifth = one_day(deployment, 5, run)
    assert all_shops(opened(deployment, fifth)) == set("abcdef")
    assert before(opened(deployment, fifth)) == {"a": True, "b": False, "c": True, "d": False, "e": False, "f": False}

    restore(deployment, str(second))
    again = one_day(deployment, 3, run, ["b", "e"])
    assert all_shops(opened(deployment, again)) == {"a", "b", "c", "d", "e"}, (
        "f was seen after the checkpoint that is restored"
    )
    assert before(opened(deployment, again))["e"] is False

    restore(deployment, str(again), 3)
    rescaled = one_day(deployment, 4, run, [])
    left, right = files(opened(deployment, again))
    assert files(opened(deployment, rescaled)) == [left, left, right, right], "the middle one sees what both had"
    assert verify(opened(deployment, rescaled)).problems == ()
    anatomy = portrait(deployment, PipelineName("learns"), CheckpointId(rescaled)).anatomy
    assert anatomy is not None
    assert SideDataFacts("model", 2, 60_000) in anatomy.side_data, "two files, however many subtasks have them"
    assert [facts.name for facts in anatomy.side_data] == ["days", "model"]
    restore(deployment, str(rescaled), 1)
    single = one_day(deployment, 5, run, ["g", "f"])
    assert models(opened(deployment, single)) == [{"a", "b", "c", "d", "e", "f", "g"}]
    assert before(opened(deployment, single)) | {"a": True} == {
        "a": True,
        "b": True,
        "c": False,
        "d": False,
        "e": False,
        "f": False,
        "g": False,
    }
    clean(deployment)
    is_whole(deployment)


@pytest.mark.parametrize(("backend", "strategy"), [HEAP, ROCKSDB])
def test_side_data_are_kept_through_restore_and_rescaling_in_one_process(
    deployment: Deployment, backend: str, strategy: str
) -> None:
    write(deployment, backend, strategy)
    story(deployment, in_this_process(deployment))


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_side_data_are_kept_through_restore_and_rescaling_on_spark(deployment: Deployment, spark: SparkSession) -> None:
    def run(checkpoint_id: CheckpointId, events: pa.Table) -> None:
        interval = deployment.catalog().get(PipelineName("learns"), checkpoint_id).interval
        assert interval is not None
        number = next(number for number in DAYS if day(number) == interval)
        directory = Path(deployment.data) / f"2013-01-{number:02}"
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(events, directory / "events.parquet")
        run_snapshot(spark, deployment, deployment.pipeline("learns"), checkpoint_id)
        assert check(deployment, deployment.pipeline("learns"), checkpoint_id).report_uri

    story(deployment, run)


@pytest.mark.parametrize(("backend", "strategy", "form"), [(*HEAP, "canonical"), (*ROCKSDB, "native")])
def test_a_savepoint_contains_copies_of_side_data(
    deployment: Deployment, tmp_path: Path, backend: str, strategy: str, form: str
) -> None:
    """The savepoint is restored in another deployment, whose first checkpoint does not depend on it."""
    write(deployment, backend, strategy)
    one_day(deployment, 1)
    second = one_day(deployment, 2)
    saved = savepoint(deployment, form)
    assert models(saved) == models(opened(deployment, second))
    assert all("/" not in path for path in files(saved)), "beside its _metadata"
    (tmp_path / "other").mkdir()
    other = new_deployment(tmp_path / "other", tmp_path / "data", tmp_path / "pipelines")
    other = replace(other, storage_root=f"{deployment.storage_root}-of-others")
    restore(other, saved.directory)
    third = opened(other, one_day(other, 3))
    assert models(third) == models(saved)
    assert all(path.startswith(f"{other.root_uri()}/learns/taskowned/") for path in files(third))
    assert files(opened(other, one_day(other, 4, shops=[]))) == files(third), "referred to from then on"
    clean(deployment)
    is_whole(deployment)


@pytest.mark.parametrize("copy", [False, True])
def test_a_fork_continues_with_the_side_data(deployment: Deployment, copy: bool) -> None:
    write(deployment, *HEAP, name="branch")
    one_day(deployment, 1)
    second = one_day(deployment, 2)
    source = deployment.catalog().get(PipelineName("learns"), CheckpointId(second))
    first = opened(
        deployment, fork(deployment, deployment.pipeline("branch"), source, "test", copy=copy).checkpoint_id, "branch"
    )
    assert models(first) == models(opened(deployment, second))
    own = f"{deployment.root_uri()}/branch/"
    assert {path.startswith(own) for path in files(first)} == {copy}
    for number in (3, 4, 5):
        one_day(deployment, number)
    clean(deployment)
    is_whole(deployment)
    begun = begin(deployment, deployment.pipeline("branch"), day(3), "test").checkpoint_id
    publish_here(deployment, deployment.pipeline("branch"), begun, table(["z"]))
    register(deployment, deployment.pipeline("branch"), begun)
    assert all_shops(opened(deployment, begun, "branch")) == {"a", "b", "c", "d", "z"}
    clean(deployment)
    is_whole(deployment)


def test_side_data_of_an_aborted_attempt_are_removed_by_the_sweep(deployment: Deployment) -> None:
    one_day(deployment, 1)
    stored_files = stored(deployment)
    begun = begin(deployment, deployment.pipeline("learns"), day(2), "test").checkpoint_id
    publish_here(deployment, deployment.pipeline("learns"), begun, table(DAYS[2]))
    left = {uri for uri in stored(deployment) - stored_files if "/taskowned/" in uri}
    assert len(left) == 2
    assert orphans(deployment)[0].files == (), "its run may still register it"
    abort(deployment, PipelineName("learns"), begun, "given up")
    assert left <= set(orphans(deployment)[0].files)
    clean(deployment)
    is_whole(deployment)


def test_side_data_of_a_second_run_of_a_task_are_discarded(deployment: Deployment) -> None:
    pipeline = deployment.pipeline("learns")
    begun = begin(deployment, pipeline, day(1), "test").checkpoint_id
    plan = plan_snapshot(deployment, pipeline, begun)
    assert plan is not None
    work = Work(deployment, pipeline, plan)
    parts = [table(DAYS[1]).filter(pa.array(mask)) for mask in owned(pipeline, plan, table(DAYS[1]))]
    reports = [snapshot_subtask(work, i, task, parts[i]) for task, i in enumerate((0, 1, 1, 0))]
    twice = {uri for uri in stored(deployment) if "/taskowned/" in uri}
    publish(deployment, pipeline, plan, len(DAYS[1]), reports)
    register(deployment, pipeline, begun)
    assert len(twice) == 2 * len(files(opened(deployment, begun)))
    is_whole(deployment)


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_damaged_side_data_are_named_and_never_read(deployment: Deployment) -> None:
    first = one_day(deployment, 1, shops=["a"])
    (path,) = files(opened(deployment, first))
    shown = call(deployment, "inspect", f"learns/{first}")
    assert f"29.3 KiB, {path}" in shown.output
    facts = json.loads(call(deployment, "inspect", f"learns/{first}", "--json").output)["side_data"]
    assert sorted((part["name"], part["path"], part["size_bytes"]) for part in facts) == [
        ("days", None, 1),
        ("model", path, 30_000),
    ]
    file = Path(local_path(path))
    file.write_bytes(file.read_bytes().replace(b'"a"', b'"b"'))
    (problem,) = verify(opened(deployment, first)).problems
    assert path in problem or str(file) in problem
    with pytest.raises(CorruptStateError, match="taskowned") as caught:
        one_day(deployment, 2)
    assert caught.value.kind == "checksum-mismatch"


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_deleted_side_data_are_removed(deployment: Deployment) -> None:
    first = one_day(deployment, 1, shops=["a"])
    write(deployment, *HEAP, **{f"{FUNCTIONS}:update": f"{FUNCTIONS}:forget"})
    second = opened(deployment, one_day(deployment, 2, shops=["a"]))
    assert models(second) == []
    assert models(opened(deployment, first)) == [{"a"}], "the checkpoint before still has it"
    one_day(deployment, 3)
    one_day(deployment, 4, shops=[])
    clean(deployment)
    is_whole(deployment)
    assert not [uri for uri in stored(deployment) if "/taskowned/" in uri]


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_names_must_be_declared_and_are_dropped_only_if_allowed(deployment: Deployment) -> None:
    one_day(deployment, 1)
    write(deployment, *HEAP, **{f"{FUNCTIONS}:update": f"{FUNCTIONS}:misspell"})
    with pytest.raises(InvalidRequestError, match="side data 'models' is not declared: known are model, days"):
        one_day(deployment, 2)
    write(deployment, *HEAP, **{"[model, days]": "[model]"})
    with pytest.raises(InvalidRequestError, match="side data 'days': the pipeline declares no such") as caught:
        one_day(deployment, 2)
    assert caught.value.kind == "non-restored-state"
    write(deployment, *HEAP, **{"[model, days]": "[model]\nallow_non_restored_state: true"})
    begun = begin(deployment, deployment.pipeline("learns"), day(2), "test").checkpoint_id
    publish_here(deployment, deployment.pipeline("learns"), begun, table([]))
    register(deployment, deployment.pipeline("learns"), begun)
    checkpoint = opened(deployment, begun)
    assert checkpoint.manifest is not None
    assert {part.name for part in checkpoint.manifest.side_data} == {"model"}


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_a_rebuilt_catalog_refers_to_the_files_of_side_data(deployment: Deployment) -> None:
    one_day(deployment, 1)
    second = one_day(deployment, 2)
    Path(deployment.catalog_url.removeprefix("sqlite:///")).unlink()
    apply_rebuild(deployment, plan_rebuild(deployment))
    is_whole(deployment)
    assert all_shops(opened(deployment, second)) == {"a", "b", "c", "d"}
    one_day(deployment, 3)
    clean(deployment)
    is_whole(deployment)
