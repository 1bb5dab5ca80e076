"""The backend of a pipeline with state is changed: every command refuses this in the same way, before it writes
anything."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.checkpoint.steps import begin, register
from statelib.flows.restore.continuation import continuation
from statelib.flows.restore.layout import lay_out
from statelib.flows.restore.steps import apply_restore, plan_restore
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.flows.wiring import Deployment
from statelib.model.ids import CheckpointId, PipelineName
from statelib.model.record import ClaimMode
from statelib.savepoints.lines import export_lines
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from tests.integration.shop import SALES, sales
from tests.integration.shop_cli import call
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

STRATEGIES = {"heap": ("canonical", "full", "changelog"), "rocksdb": ("canonical", "full", "incremental", "changelog")}
WAYS = tuple((backend, strategy) for backend, strategies in STRATEGIES.items() for strategy in strategies)
NATIVE = {("heap", "full"), ("rocksdb", "full"), ("rocksdb", "incremental"), ("rocksdb", "changelog")}
"""The strategies from which the other backend cannot continue: their materialised state is in the backend's own
form."""

Judge = Callable[[Deployment], object]
JUDGES: dict[str, Judge] = {
    "begin": lambda deployment: begin(deployment, deployment.pipeline("sales"), day(2), "test"),
    "savepoint": lambda deployment: begin_savepoint(
        deployment, deployment.pipeline("sales"), format="native", target=None, note="", owner="test", key="k"
    ),
    "restore by id": lambda deployment: plan_restore(
        deployment, deployment.pipeline("sales"), "1", None, ClaimMode.NO_CLAIM
    ),
    "restore by path": lambda deployment: plan_restore(
        deployment, deployment.pipeline("sales"), path(deployment), 3, ClaimMode.NO_CLAIM
    ),
    "layout of a run": lambda deployment: lay_out(
        opened(deployment, path(deployment)), 2, deployment.pipeline("sales")
    ),
}


def opened(deployment: Deployment, directory: str) -> Checkpoint:
    return open_checkpoint(directory, own=True, storage_root=deployment.storage_root)


def path(deployment: Deployment) -> str:
    return deployment.catalog().get(PipelineName("sales"), CheckpointId(1)).directory


def write(deployment: Deployment, backend: str, strategy: str) -> None:
    text = SALES.replace("backend: heap", f"backend: {backend}").replace("bytes: 1", f"bytes: 1, strategy: {strategy}")
    Path(deployment.pipelines_directory, "sales.yaml").write_text(text)


def world(root: Path, way: tuple[str, str]) -> Deployment:
    pipelines = root / "pipelines"
    pipelines.mkdir()
    deployment = new_deployment(root, root, pipelines)
    write(deployment, *way)
    checkpoint_of(deployment, "sales", 1, sales(0))
    return deployment


@contextmanager
def nothing_written(deployment: Deployment) -> Iterator[None]:
    """Assert that neither a file nor a row of a checkpoint was written."""

    def files_and_rows() -> tuple[list[Path], int]:
        return sorted(Path(deployment.storage_root).rglob("*")), len(deployment.catalog().list(PipelineName("sales")))

    before = files_and_rows()
    yield
    assert files_and_rows() == before


LATER = (("heap", "canonical"), ("rocksdb", "incremental"), ("rocksdb", "changelog"))
OTHERS = [(way, other) for way, other in product(WAYS, LATER) if way[0] != other[0]]


@pytest.mark.parametrize(("way", "other"), OTHERS, ids="-".join)
def test_every_command_refuses_a_changed_backend_in_the_same_way(
    tmp_path: Path, way: tuple[str, str], other: tuple[str, str]
) -> None:
    deployment = world(tmp_path, way)
    write(deployment, *other)
    if way not in NATIVE:
        for judge in list(JUDGES.values())[2:]:
            judge(deployment)
        assert call(deployment, "pipelines", "validate", "--state").exit_code == 0
        before = sorted(export_lines(opened(deployment, path(deployment)), None))
        moved = checkpoint_of(deployment, "sales", 2, sales(0).slice(0, 0))
        record = deployment.catalog().get(PipelineName("sales"), moved)
        assert sorted(export_lines(opened(deployment, record.directory), None)) == before
        return
    with nothing_written(deployment):
        for name, judge in JUDGES.items():
            with pytest.raises(InvalidRequestError) as caught:
                judge(deployment)
            assert caught.value.kind == "backend-changed", name
            assert path(deployment) in caught.value.message, name
            assert f"'backend: {way[0]}'" in caught.value.hint, name
        result = call(deployment, "pipelines", "validate", "--state")
        assert result.exit_code == 1
        assert f"the native form of the backend {way[0]}" in result.stderr
        assert result.stderr.endswith("0 valid, 1 not\n")
        assert call(deployment, "pipelines", "validate").exit_code == 0


def test_the_steps_of_the_hint_lead_to_the_new_backend(tmp_path: Path) -> None:
    deployment = world(tmp_path, ("rocksdb", "incremental"))
    saved = begin_savepoint(
        deployment, deployment.pipeline("sales"), format="canonical", target=None, note="", owner="test", key="k"
    ).checkpoint_id
    publish_here(deployment, deployment.pipeline("sales"), saved)
    register(deployment, deployment.pipeline("sales"), saved)
    directory = deployment.catalog().get(PipelineName("sales"), saved).directory
    write(deployment, "heap", "full")
    plan = plan_restore(deployment, deployment.pipeline("sales"), directory, None, ClaimMode.NO_CLAIM)
    apply_restore(deployment, deployment.pipeline("sales"), plan, "test")
    moved = checkpoint_of(deployment, "sales", 2, sales(6))
    record = opened(deployment, deployment.catalog().get(PipelineName("sales"), moved).directory)
    assert continuation(deployment.pipeline("sales"), record).check().non_restored() == ()


def test_validation_also_checks_the_state_of_a_former_name(tmp_path: Path) -> None:
    deployment = world(tmp_path, ("rocksdb", "full"))
    text = SALES.replace("name: sales", "name: revenue\nrenamed_from: [sales]")
    Path(deployment.pipelines_directory, "sales.yaml").write_text(text)
    result = call(deployment, "pipelines", "validate", "--state")
    assert result.exit_code == 1
    assert "the native form of the backend rocksdb" in result.stderr


def test_validation_of_state_needs_a_catalog(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    deployment = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    result = call(deployment, "pipelines", "validate", "--state")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "there is no catalog at " in result.stderr
    assert not Path(tmp_path, "catalog.db").exists()
