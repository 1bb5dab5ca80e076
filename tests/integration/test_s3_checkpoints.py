"""Checkpoint, verify, savepoint and restore with all state on S3: real flows over HTTP, no Spark."""

import json
import logging
from dataclasses import dataclass, replace
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from statelib.errors import CorruptStateError, NotFoundError
from statelib.flows import wiring
from statelib.flows.checkpoint.steps import begin, check, register
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import open_checkpoint
from statelib.savepoints.verification.snapshots import verify_at
from statelib.storage.registry import PLACES
from tests.integration.shop import SALES, TOURS, environment, sales
from tests.integration.shop_cli import call, said
from tests.support.fault_proxy import Fault
from tests.support.s3_endpoint import CANARY, S3Endpoint
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here


@dataclass(frozen=True)
class OnS3:
    deployment: Deployment
    store: S3Store
    root: str

    def stored(self) -> set[str]:
        return {item["path"] for page in obstore.list(self.store) for item in page}


@pytest.fixture
def on_s3(tmp_path: Path, s3: S3Endpoint, bucket: str) -> OnS3:
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "sales.yaml").write_text(SALES)
    (pipelines / "tours.yaml").write_text(TOURS + "checkpoint: {inline_threshold_bytes: 1}\n")
    root = f"s3://{bucket}/state"
    deployment = replace(new_deployment(tmp_path, tmp_path, pipelines), storage_root=root)
    store = S3Store(bucket, endpoint=s3.direct_url, client_options={"allow_http": True})
    return OnS3(wiring.deployment(environment(deployment)), store, root)


def totals(directory: str) -> dict[str, int]:
    table = open_checkpoint(directory).to_arrow("total")
    return {row["key"]: row["value"]["amount"] for row in table.to_pylist()}


@pytest.mark.parametrize("name", ["sales", "tours"])
def test_a_checkpoint_on_s3_is_complete_and_the_next_builds_on_it(on_s3: OnS3, name: str, tmp_path: Path) -> None:
    for number in (1, 2):
        checkpoint_of(on_s3.deployment, name, number, sales(6 * number))
        directory = f"{on_s3.root}/{name}/chk-{number}"
        verified = verify_at(directory, own=True)
        assert (verified.problems, verified.directory) == ((), directory)
        assert verified.files > 1
    assert check(on_s3.deployment, on_s3.deployment.pipeline(name), number).passed
    assert not any((tmp_path / "state").iterdir())
    assert not any((tmp_path / "scratch").iterdir())


def test_merged_checkpoints_on_s3_have_few_objects_and_pass_the_gate(on_s3: OnS3) -> None:
    options = "{strategy: incremental, inline_threshold_bytes: 0, file_merging: {enabled: true}}"
    (Path(on_s3.deployment.pipelines_directory) / "tours.yaml").write_text(TOURS + f"checkpoint: {options}\n")
    pipeline = on_s3.deployment.pipeline("tours")
    for number in (1, 2, 3):
        before = on_s3.stored()
        begun = begin(on_s3.deployment, pipeline, day(number), "test")
        publish_here(on_s3.deployment, pipeline, begun.checkpoint_id, sales(6 * number))
        assert check(on_s3.deployment, pipeline, begun.checkpoint_id).passed
        register(on_s3.deployment, pipeline, begun.checkpoint_id)
        new = {key for key in on_s3.stored() - before if "/tours/" in key and "/." not in key}
        assert len(new) <= 5, "of each subtask what is shared and what is not, and _metadata"
        verified = verify_at(f"{on_s3.root}/tours/chk-{number}", own=True, storage_root=on_s3.root)
        assert verified.problems == ()
    opened = open_checkpoint(f"{on_s3.root}/tours/chk-3", storage_root=on_s3.root)
    assert opened.manifest is not None
    assert all(file.segments for file in opened.manifest.files)
    assert len(opened.to_arrow("best")) == 6


def test_state_on_s3_is_the_same_as_on_disk(on_s3: OnS3, tmp_path: Path) -> None:
    local = replace(
        on_s3.deployment, storage_root=str(tmp_path / "state"), catalog_url=f"sqlite:///{tmp_path}/other.db"
    )
    for deployment in (on_s3.deployment, local):
        checkpoint_of(deployment, "sales", 1, sales(0))
        checkpoint_of(deployment, "sales", 2, sales(6))
    totals_on_s3 = totals(f"{on_s3.root}/sales/chk-2")
    assert totals_on_s3 == totals(f"{tmp_path}/state/sales/chk-2") == {"shop-0": 18, "shop-1": 22, "shop-2": 26}


def test_the_problem_names_a_lost_object(on_s3: OnS3) -> None:
    checkpoint_of(on_s3.deployment, "tours", 1, sales(0))
    checkpoint_of(on_s3.deployment, "tours", 2, sales(6))
    record = on_s3.deployment.catalog().get(PipelineName("tours"), 2)
    victim = next(key for key in sorted(on_s3.stored()) if key.startswith("state/tours/chk-2/") and key[-1].isdigit())
    obstore.delete(on_s3.store, victim)
    (problem,) = verify_at(record.directory, own=True).problems
    assert problem.startswith(f"{on_s3.root.removesuffix('/state')}/{victim} ")
    assert "found no file" in problem
    with pytest.raises(CorruptStateError) as caught:
        check(on_s3.deployment, on_s3.deployment.pipeline("tours"), 2)
    assert caught.value.kind == "gate-failed"
    with pytest.raises(NotFoundError) as missing:
        checkpoint_of(on_s3.deployment, "tours", 3, sales(12))
    assert victim in str(missing.value)
    assert verify_at(f"{on_s3.root}/tours/chk-1", own=True).problems == ()
    pipeline = on_s3.deployment.pipeline("tours")
    apply_restore(
        on_s3.deployment, pipeline, plan_restore(on_s3.deployment, pipeline, "1", None, ClaimMode.NO_CLAIM), "test"
    )
    again = checkpoint_of(on_s3.deployment, "tours", 2, sales(6))
    assert verify_at(f"{on_s3.root}/tours/chk-{again}", own=True).problems == ()


@pytest.mark.parametrize(("target", "form"), [(None, "canonical"), ("s3", "native"), ("file", "canonical")])
def test_savepoints_are_written_to_the_users_target(on_s3: OnS3, tmp_path: Path, target: str | None, form: str) -> None:
    places = {None: None, "s3": f"{on_s3.root}-mine/by hand", "file": f"file://{tmp_path}/mine"}
    expected = {None: f"{on_s3.root}/savepoints", "s3": places["s3"], "file": places["file"]}
    deployment, pipeline = on_s3.deployment, on_s3.deployment.pipeline("tours")
    checkpoint_of(deployment, "tours", 1, sales(0))
    begun = begin_savepoint(
        deployment, pipeline, format=form, target=places[target], note="", owner="test", key=f"{form}{target}"
    )
    publish_here(deployment, pipeline, begun.checkpoint_id)
    directory = register(deployment, pipeline, begun.checkpoint_id).directory
    assert directory == f"{expected[target]}/savepoint-tours-{begun.checkpoint_id}"
    assert verify_at(directory, own=False).problems == ()
    plan = plan_restore(deployment, pipeline, directory, 3, ClaimMode.NO_CLAIM)
    assert (plan.directory, plan.parallelism) == (directory, 3)
    apply_restore(deployment, pipeline, plan, "test")
    after = checkpoint_of(deployment, "tours", 2, sales(6))
    assert verify_at(f"{on_s3.root}/tours/chk-{after}", own=True).problems == ()


def test_a_savepoint_of_another_deployment_is_restored_by_path(on_s3: OnS3, tmp_path: Path) -> None:
    local = replace(
        on_s3.deployment, storage_root=str(tmp_path / "state"), catalog_url=f"sqlite:///{tmp_path}/other.db"
    )
    checkpoint_of(on_s3.deployment, "sales", 1, sales(0))
    plan = plan_restore(local, local.pipeline("sales"), f"{on_s3.root}/sales/chk-1/", None, ClaimMode.NO_CLAIM)
    apply_restore(local, local.pipeline("sales"), plan, "test")
    number = checkpoint_of(local, "sales", 2, sales(6))
    assert totals(f"{tmp_path}/state/sales/chk-{number}") == {"shop-0": 18, "shop-1": 22, "shop-2": 26}


def test_the_command_line_reads_snapshots_on_s3(on_s3: OnS3, tmp_path: Path) -> None:
    checkpoint_of(on_s3.deployment, "sales", 1, sales(0))
    path = f"{on_s3.root}/sales/chk-1"
    assert path in said(None, "verify", path)
    assert path in said(on_s3.deployment, "verify")
    assert json.loads(said(None, "inspect", path, "--json"))["directory"] == path
    lines = said(None, "export", path, "--state", "total").splitlines()
    assert len(lines) == 3
    said(None, "export", path, "--format", "parquet", "--output", tmp_path / "out")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "total.parquet",
        "per_item.parquet",
        "items.parquet",
    }
    victim = next(key for key in sorted(on_s3.stored()) if key.startswith("state/sales/chk-1/") and key[-1].isdigit())
    obstore.delete(on_s3.store, victim)
    result = call(None, "verify", path)
    assert result.exit_code == 1
    assert victim in result.stdout


def test_no_file_object_or_output_contains_the_secret_or_the_endpoint(
    on_s3: OnS3, s3: S3Endpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    name = PipelineName("tours")
    checkpoint_of(on_s3.deployment, name, 1, sales(0))
    check(on_s3.deployment, on_s3.deployment.pipeline(name), 1)
    s3.break_next(Fault("status", "GET", "_metadata", 99, status=403))
    printed = call(None, "verify", f"{on_s3.root}/tours/chk-1").output
    s3.break_next()
    printed += said(on_s3.deployment, "inspect", f"{on_s3.root}/tours/chk-1") + caplog.text + repr(on_s3.deployment)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.name == "catalog.db" for path in files)
    stored = [bytes(obstore.get(on_s3.store, key).bytes()) for key in on_s3.stored()]
    for secret in (CANARY, s3.url, s3.direct_url):
        assert secret not in printed
        assert [data[:100] for data in (*files.values(), *stored) if secret.encode() in data] == []


def test_a_try_that_fails_leaves_no_data_and_the_next_succeeds(on_s3: OnS3, s3: S3Endpoint) -> None:
    pipeline = on_s3.deployment.pipeline("tours")
    begun = begin(on_s3.deployment, pipeline, day(1), "test")
    s3.break_next(Fault("status", "PUT", "tours/chk-1/", 1, status=400))
    with pytest.raises(Exception, match="status 400"):
        publish_here(on_s3.deployment, pipeline, begun.checkpoint_id, sales(0))
    listed = {file.path for file in PLACES.kind(on_s3.root).list_files(f"{on_s3.root}/tours/chk-1")}
    assert listed == {".location"}
    publish_here(on_s3.deployment, pipeline, begun.checkpoint_id, sales(0))
    assert register(on_s3.deployment, pipeline, begun.checkpoint_id).checkpoint_id == begun.checkpoint_id


def test_gc_hints_at_the_lifecycle_rule_of_the_bucket(on_s3: OnS3, tmp_path: Path) -> None:
    checkpoint_of(on_s3.deployment, "sales", 1, sales(6))
    for command in ("gc", "orphans"):
        assert "AbortIncompleteMultipartUpload" in call(on_s3.deployment, command).stderr
    local = replace(
        on_s3.deployment, storage_root=str(tmp_path / "state"), catalog_url=f"sqlite:///{tmp_path}/other.db"
    )
    local.migrate_catalog()
    assert call(local, "gc").stderr == ""


def test_local_copies_are_read_instead_of_s3(on_s3: OnS3, tmp_path: Path) -> None:
    settings = "checkpoint: {inline_threshold_bytes: 1, local_recovery: true, strategy: incremental}\n"
    (tmp_path / "pipelines" / "tours.yaml").write_text(TOURS + settings)
    checkpoint_of(on_s3.deployment, "tours", 1, sales(0))
    for key in on_s3.stored():
        if key.startswith("state/tours/") and key[-1].isdigit():
            obstore.delete(on_s3.store, key)
    pipeline = on_s3.deployment.pipeline("tours")
    publish_here(on_s3.deployment, pipeline, begin(on_s3.deployment, pipeline, day(2), "test").checkpoint_id, sales(6))
    manifest = open_checkpoint(f"{on_s3.root}/tours/chk-2", own=True).manifest
    assert manifest is not None
    assert manifest.restored_from == ("local", "local")
