"""A restore plan does not change when it is passed through Airflow, and its text has everything that a person needs
for a decision."""

import dataclasses
from pathlib import Path

import pytest

from statelib.errors import ConflictError
from statelib.flows.restore.estimate import Throughput, measured
from statelib.flows.restore.plan import RestorePlan
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.model.checkpoint import RestoreMeasure
from statelib.model.ids import PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.opened import open_checkpoint
from tests.integration.garbage import days, events, tally
from tests.integration.shop import SALES, open_shop, sales
from tests.support.worlds import checkpoint_of, new_deployment


def test_a_plan_is_read_back_from_json_and_its_text_is_complete(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    plan = plan_restore(deployment, deployment.pipeline("sales"), "1", 3, ClaimMode.NO_CLAIM)
    assert RestorePlan.from_json(plan.to_json()) == plan
    assert hash(RestorePlan.from_json(plan.to_json())) == hash(plan)
    description = plan.describe()
    assert "- leaves behind: 5\n- aborts, because it is under way: 6\n" in description
    read = plan.reads[1]
    assert (
        f"- subtask 1 (key groups 43-85) reads 2 handles: 0-63, 64-127; {read.size_bytes:,} bytes, 8 entries"
        in description
    )


@pytest.mark.parametrize(("chosen", "following"), [(None, [2, 4]), (3, [3, 3])])
def test_a_restore_overrides_the_parallelism_of_the_file_only_if_one_was_chosen(
    tmp_path: Path, chosen: int | None, following: list[int]
) -> None:
    deployment = tally(tmp_path)
    days(deployment, 1, 2)
    pipeline = deployment.pipeline("tally")
    plan = RestorePlan.from_json(plan_restore(deployment, pipeline, "1", chosen, ClaimMode.NO_CLAIM).to_json())
    apply_restore(deployment, pipeline, plan, "test")
    days(deployment, 2, 2)
    file = tmp_path / "pipelines" / "tally.yaml"
    file.write_text(file.read_text().replace("parallelism: 2", "parallelism: 4"))
    days(deployment, 3, 3)
    newest = deployment.catalog().list(PipelineName("tally"), limit=2)
    assert [record.parallelism for record in reversed(newest)] == following


def test_a_renamed_pipeline_has_the_parallelism_of_its_file(tmp_path: Path) -> None:
    deployment = tally(tmp_path)
    days(deployment, 1, 1)
    file = tmp_path / "pipelines" / "tally.yaml"
    text = file.read_text().replace("name: tally", "name: total\nrenamed_from: tally")
    (tmp_path / "pipelines" / "total.yaml").write_text(text)
    for number, parallelism in ((2, 2), (3, 4)):
        (tmp_path / "pipelines" / "total.yaml").write_text(text.replace("lelism: 2", f"lelism: {parallelism}"))
        done = checkpoint_of(deployment, "total", number, events(number))
        assert deployment.catalog().get(PipelineName("total"), done).parallelism == parallelism


def test_an_approved_plan_is_refused_after_the_head_moved(tmp_path: Path) -> None:
    deployment = open_shop(tmp_path)
    pipeline = deployment.pipeline("sales")
    plan = plan_restore(deployment, pipeline, "1", None, ClaimMode.NO_CLAIM)
    assert plan.head == 5
    checkpoint_of(deployment, "sales", 3, sales(6))
    head = deployment.catalog().head(PipelineName("sales"))
    assert head.head == 7
    with pytest.raises(ConflictError, match=r"was checkpoint 5 .* is 7 now"):
        apply_restore(deployment, pipeline, plan, "test", approved=True)
    assert deployment.catalog().head(PipelineName("sales")).head == 7
    assert apply_restore(deployment, pipeline, plan, "test").head == 1, "nobody was asked about a plan"


def test_the_estimate_uses_the_newest_measured_restore_and_the_bytes_of_the_plan(
    tmp_path: Path,
) -> None:
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "sales.yaml").write_text(SALES)
    deployment = new_deployment(tmp_path, tmp_path, pipelines)
    pipeline = deployment.pipeline("sales")
    checkpoint_of(deployment, "sales", 1, sales(0))
    plan = plan_restore(deployment, pipeline, "1", 3, ClaimMode.NO_CLAIM)
    assert (plan.estimate_ms, plan.estimated_from) == (None, None)
    assert "- slowest subtask: unknown" in plan.describe()
    apply_restore(deployment, pipeline, plan, "test")
    checkpoint_of(deployment, "sales", 2, sales(6))
    manifest = open_checkpoint(f"{deployment.storage_root}/sales/chk-2", own=True).manifest
    assert manifest is not None
    assert [r.size_bytes for r in manifest.restores if r] == [read.size_bytes for read in plan.reads]
    later_plan = plan_restore(deployment, pipeline, "1", 3, ClaimMode.NO_CLAIM)
    throughput = measured(manifest)
    assert throughput is not None
    assert later_plan.estimate_ms == throughput.slowest_ms(read.size_bytes for read in later_plan.reads)
    assert later_plan.estimated_from == 2
    assert (
        f"- slowest subtask: about {later_plan.estimate_ms / 1000:.1f} s, as fast as before checkpoint 2"
        in later_plan.describe()
    )
    remeasured = dataclasses.replace(
        manifest,
        restores=(RestoreMeasure(1000, 10), RestoreMeasure(3000, 30), RestoreMeasure(9, 999)),
        restored_from=("remote", "remote", "local"),
    )
    assert measured(remeasured) == Throughput(2, 4000, 40)
    assert Throughput(2, 4000, 40).slowest_ms([1, 801, 5]) == 9
    assert measured(dataclasses.replace(manifest, restored_from=("local", "mixed", "empty"))) is None


def test_an_operator_is_named_by_the_uid_of_the_pipeline(tmp_path: Path) -> None:
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "sales.yaml").write_text(SALES + "uid: shops\nuid_hash: 0123456789abcdef0123456789abcdef\n")
    deployment = new_deployment(tmp_path, tmp_path, pipelines)
    checkpoint_of(deployment, "sales", 1, sales(0))
    opened = open_checkpoint(f"{deployment.storage_root}/sales/chk-1", own=True)
    (operator,) = opened.operators
    assert (opened.operator_name(operator), operator.operator_id.hex()) == ("shops", "0123456789abcdef" * 2)
    assert opened.select("shops").selected == operator.operator_id
