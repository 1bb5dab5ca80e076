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
from statelib.savepoints.verification import verify
from statelib.spark.snapshot.driver import run_snapshot
from statelib.spark.snapshot.worker import Work, snapshot_subtask
from statelib.storage.uris import local_path
from tests.integration.garbage import needed, stored
from tests.integration.learning_functions import shops_of
from tests.integration.shop_cli import call
from tests.support.worlds import day, new_deployment, owned, publish_here

FUNCTIONS = "tests.integration.learning_functions"
PIPELINE = f"""\
name: {{name}}
source: {{{{path: "{{{{data}}}}/{{{{start:%Y-%m-%d}}}}/*.parquet", columns: {{{{shop: string}}}}}}}}
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
"""By day, the shops that have events."""
Run = Callable[[CheckpointId, pa.Table], None]
"""Takes the snapshot of a checkpoint that has begun."""


@pytest.fixture(params=["files", "s3"])
def place(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def here(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    here = new_deployment(tmp_path, tmp_path / "data", tmp_path / "pipelines")
    write(here, *HEAP)
    return replace(here, storage_root=f"s3://{request.getfixturevalue('bucket')}/state") if place == "s3" else here


def write(here: Deployment, backend: str, strategy: str, name: str = "learns", **replaced: str) -> None:
    text = PIPELINE.format(name=name, backend=backend, strategy=strategy)
    for old, new in replaced.items():
        assert old in text
        text = text.replace(old, new)
    (Path(here.pipelines_directory) / f"{name}.yaml").write_text(text)


def table(shops: list[str]) -> pa.Table:
    return pa.table({"shop": pa.array(shops, pa.string())})


def in_this_process(here: Deployment) -> Run:
    return lambda checkpoint_id, events: publish_here(here, here.pipeline("learns"), checkpoint_id, events)


def one_day(here: Deployment, number: int, run: Run | None = None, shops: list[str] | None = None) -> int:
    run = run or in_this_process(here)
    checkpoint_id = begin(here, here.pipeline("learns"), day(number), "test").checkpoint_id
    run(checkpoint_id, table(DAYS[number] if shops is None else shops))
    return register(here, here.pipeline("learns"), checkpoint_id).checkpoint_id


def restore(here: Deployment, path: str, parallelism: int | None = None) -> None:
    plan = plan_restore(here, here.pipeline("learns"), path, parallelism, ClaimMode.NO_CLAIM)
    apply_restore(here, here.pipeline("learns"), plan, "test")


def savepoint(here: Deployment, form: str, target: str | None = None, run: Run | None = None) -> Checkpoint:
    pipeline = here.pipeline("learns")
    begun = begin_savepoint(here, pipeline, format=form, target=target, note="", owner="t", key=f"{form} {target}")
    (run or in_this_process(here))(begun.checkpoint_id, table([]))
    register(here, pipeline, begun.checkpoint_id)
    return opened(here, begun.checkpoint_id)


def opened(here: Deployment, checkpoint_id: int, name: str = "learns") -> Checkpoint:
    return resolve(here, f"{name}/{checkpoint_id}")


def models(found: Checkpoint) -> list[set[str]]:
    """The shops of each model, in the order of the key groups."""
    assert found.manifest is not None
    records = [part for part in found.manifest.side_data if part.name == "model"]
    read = found.reader().read
    return [shops_of(bytes(read(part.handle))) for part in sorted(records, key=lambda p: p.key_group_range.start)]


def known(found: Checkpoint) -> set[str]:
    return set[str]().union(*models(found))


def files(found: Checkpoint) -> list[str]:
    """The file of each model, in the order of the key groups."""
    assert found.manifest is not None
    records = sorted(found.manifest.side_data, key=lambda part: part.key_group_range.start)
    return [p.handle.path for p in records if not isinstance(p.handle, ByteStreamStateHandle)]


def before(found: Checkpoint) -> dict[str, bool]:
    """By shop, whether a model had seen it when it came last."""
    return {row["key"]: row["value"]["seen_before"] for row in found.to_arrow("seen").to_pylist()}


def clean(here: Deployment) -> None:
    retire(here)
    collect_garbage(here)
    orphans(here, dry_run=False, force=True, grace_ms=0)


def is_whole(here: Deployment) -> None:
    """Every checkpoint has its side data, and nothing else lies there."""
    for record in here.catalog().list(None, {CheckpointState.COMPLETED}):
        assert verify(resolve(here, f"{record.pipeline}/{record.checkpoint_id}")).problems == ()
    assert needed(here) == {uri for uri in stored(here) if not uri.rpartition("/")[2].startswith(".")}


def story(here: Deployment, run: Run) -> None:
    """Five days, gc, a restore of the second one, rescaling from two subtasks to three and to one."""
    one_day(here, 1, run)
    second = one_day(here, 2, run)
    assert known(opened(here, second)) == {"a", "b", "c", "d"}
    assert before(opened(here, second)) == {"a": True, "b": False, "c": False, "d": False}
    third = one_day(here, 3, run)
    assert files(opened(here, third)) == files(opened(here, second)), "without events, nothing is written again"
    one_day(here, 4, run)
    fifth = one_day(here, 5, run)
    assert known(opened(here, fifth)) == set("abcdef")
    assert before(opened(here, fifth)) == {"a": True, "b": False, "c": True, "d": False, "e": False, "f": False}

    restore(here, str(second))
    again = one_day(here, 3, run, ["b", "e"])
    assert known(opened(here, again)) == {"a", "b", "c", "d", "e"}, "f was seen after the checkpoint that is restored"
    assert before(opened(here, again))["e"] is False

    restore(here, str(again), 3)
    rescaled = one_day(here, 4, run, [])
    left, right = files(opened(here, again))
    assert files(opened(here, rescaled)) == [left, left, right, right], "the middle one sees what both had"
    assert verify(opened(here, rescaled)).problems == ()
    anatomy = portrait(here, PipelineName("learns"), CheckpointId(rescaled)).anatomy
    assert anatomy is not None
    assert SideDataFacts("model", 2, 60_000) in anatomy.side_data, "two files, however many subtasks have them"
    assert [facts.name for facts in anatomy.side_data] == ["days", "model"]
    restore(here, str(rescaled), 1)
    single = one_day(here, 5, run, ["g", "f"])
    assert models(opened(here, single)) == [{"a", "b", "c", "d", "e", "f", "g"}]
    assert before(opened(here, single)) | {"a": True} == {
        "a": True,
        "b": True,
        "c": False,
        "d": False,
        "e": False,
        "f": False,
        "g": False,
    }
    clean(here)
    is_whole(here)


@pytest.mark.parametrize(("backend", "strategy"), [HEAP, ROCKSDB])
def test_in_this_process(here: Deployment, backend: str, strategy: str) -> None:
    write(here, backend, strategy)
    story(here, in_this_process(here))


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_on_spark(here: Deployment, spark: SparkSession) -> None:
    def run(checkpoint_id: CheckpointId, events: pa.Table) -> None:
        interval = here.catalog().get(PipelineName("learns"), checkpoint_id).interval
        assert interval is not None
        number = next(number for number in DAYS if day(number) == interval)
        directory = Path(here.data) / f"2013-01-{number:02}"
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(events, directory / "events.parquet")
        run_snapshot(spark, here, here.pipeline("learns"), checkpoint_id)
        assert check(here, here.pipeline("learns"), checkpoint_id).report_uri

    story(here, run)


@pytest.mark.parametrize(("backend", "strategy", "form"), [(*HEAP, "canonical"), (*ROCKSDB, "native")])
def test_a_savepoint_carries_copies(here: Deployment, tmp_path: Path, backend: str, strategy: str, form: str) -> None:
    """It is restored in another deployment, whose first checkpoint depends on nothing of it."""
    write(here, backend, strategy)
    one_day(here, 1)
    second = one_day(here, 2)
    saved = savepoint(here, form)
    assert models(saved) == models(opened(here, second))
    assert all("/" not in path for path in files(saved)), "beside its _metadata"
    (tmp_path / "other").mkdir()
    other = new_deployment(tmp_path / "other", tmp_path / "data", tmp_path / "pipelines")
    other = replace(other, storage_root=f"{here.storage_root}-of-others")
    restore(other, saved.directory)
    third = opened(other, one_day(other, 3))
    assert models(third) == models(saved)
    assert all(path.startswith(f"{other.root_uri()}/learns/taskowned/") for path in files(third))
    assert files(opened(other, one_day(other, 4, shops=[]))) == files(third), "referred to from then on"
    clean(here)
    is_whole(here)


@pytest.mark.parametrize("copy", [False, True])
def test_a_fork_goes_on_with_it(here: Deployment, copy: bool) -> None:
    write(here, *HEAP, name="branch")
    one_day(here, 1)
    second = one_day(here, 2)
    source = here.catalog().get(PipelineName("learns"), CheckpointId(second))
    first = opened(here, fork(here, here.pipeline("branch"), source, "test", copy=copy).checkpoint_id, "branch")
    assert models(first) == models(opened(here, second))
    own = f"{here.root_uri()}/branch/"
    assert {path.startswith(own) for path in files(first)} == {copy}
    for number in (3, 4, 5):
        one_day(here, number)
    clean(here)
    is_whole(here)
    begun = begin(here, here.pipeline("branch"), day(3), "test").checkpoint_id
    publish_here(here, here.pipeline("branch"), begun, table(["z"]))
    register(here, here.pipeline("branch"), begun)
    assert known(opened(here, begun, "branch")) == {"a", "b", "c", "d", "z"}
    clean(here)
    is_whole(here)


def test_what_an_aborted_attempt_left_is_swept(here: Deployment) -> None:
    one_day(here, 1)
    kept = stored(here)
    begun = begin(here, here.pipeline("learns"), day(2), "test").checkpoint_id
    publish_here(here, here.pipeline("learns"), begun, table(DAYS[2]))
    left = {uri for uri in stored(here) - kept if "/taskowned/" in uri}
    assert len(left) == 2
    assert orphans(here)[0].files == (), "its run may still register it"
    abort(here, PipelineName("learns"), begun, "given up")
    assert left <= set(orphans(here)[0].files)
    clean(here)
    is_whole(here)


def test_what_a_second_run_of_a_task_wrote_is_discarded(here: Deployment) -> None:
    pipeline = here.pipeline("learns")
    begun = begin(here, pipeline, day(1), "test").checkpoint_id
    plan = plan_snapshot(here, pipeline, begun)
    assert plan is not None
    work = Work(here, pipeline, plan)
    parts = [table(DAYS[1]).filter(pa.array(mask)) for mask in owned(pipeline, plan, table(DAYS[1]))]
    reports = [snapshot_subtask(work, i, task, parts[i]) for task, i in enumerate((0, 1, 1, 0))]
    twice = {uri for uri in stored(here) if "/taskowned/" in uri}
    publish(here, pipeline, plan, len(DAYS[1]), reports)
    register(here, pipeline, begun)
    assert len(twice) == 2 * len(files(opened(here, begun)))
    is_whole(here)


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_damage_is_named_and_never_read(here: Deployment) -> None:
    first = one_day(here, 1, shops=["a"])
    (path,) = files(opened(here, first))
    shown = call(here, "inspect", f"learns/{first}")
    assert f"29.3 KiB, {path}" in shown.output
    facts = json.loads(call(here, "inspect", f"learns/{first}", "--json").output)["side_data"]
    assert sorted((part["name"], part["path"], part["size_bytes"]) for part in facts) == [
        ("days", None, 1),
        ("model", path, 30_000),
    ]
    file = Path(local_path(path))
    file.write_bytes(file.read_bytes().replace(b'"a"', b'"b"'))
    (problem,) = verify(opened(here, first)).problems
    assert path in problem or str(file) in problem
    with pytest.raises(CorruptStateError, match="taskowned") as caught:
        one_day(here, 2)
    assert caught.value.kind == "checksum-mismatch"


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_what_is_deleted_is_gone(here: Deployment) -> None:
    first = one_day(here, 1, shops=["a"])
    write(here, *HEAP, **{f"{FUNCTIONS}:update": f"{FUNCTIONS}:forget"})
    second = opened(here, one_day(here, 2, shops=["a"]))
    assert models(second) == []
    assert models(opened(here, first)) == [{"a"}], "the checkpoint before still has it"
    one_day(here, 3)
    one_day(here, 4, shops=[])
    clean(here)
    is_whole(here)
    assert not [uri for uri in stored(here) if "/taskowned/" in uri]


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_names_are_declared_and_dropped_only_if_allowed(here: Deployment) -> None:
    one_day(here, 1)
    write(here, *HEAP, **{f"{FUNCTIONS}:update": f"{FUNCTIONS}:misspell"})
    with pytest.raises(InvalidRequestError, match="side data 'models' is not declared: known are model, days"):
        one_day(here, 2)
    write(here, *HEAP, **{"[model, days]": "[model]"})
    with pytest.raises(InvalidRequestError, match="side data 'days': the pipeline declares no such") as caught:
        one_day(here, 2)
    assert caught.value.kind == "non-restored-state"
    write(here, *HEAP, **{"[model, days]": "[model]\nallow_non_restored_state: true"})
    begun = begin(here, here.pipeline("learns"), day(2), "test").checkpoint_id
    publish_here(here, here.pipeline("learns"), begun, table([]))
    register(here, here.pipeline("learns"), begun)
    found = opened(here, begun)
    assert found.manifest is not None
    assert {part.name for part in found.manifest.side_data} == {"model"}


@pytest.mark.parametrize("place", ["files"], indirect=True)
def test_a_catalog_that_is_rebuilt_knows_its_files(here: Deployment) -> None:
    one_day(here, 1)
    second = one_day(here, 2)
    Path(here.catalog_url.removeprefix("sqlite:///")).unlink()
    apply_rebuild(here, plan_rebuild(here))
    is_whole(here)
    assert known(opened(here, second)) == {"a", "b", "c", "d"}
    one_day(here, 3)
    clean(here)
    is_whole(here)
