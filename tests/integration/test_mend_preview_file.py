"""The file that hands a preview over, on a file system and in a bucket: it is read and removed."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statelib.errors import NotFoundError
from statelib.flows.cleanup.orphans import orphans
from statelib.flows.mending.preview_file import store_preview, take_preview
from statelib.flows.wiring import Deployment
from statelib.storage.registry import new_attempt
from tests.support.worlds import checkpoint_of, new_deployment

PIPELINE = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, amount: long}}
key: shop
states: {total: {kind: value, value: {agg: sum, of: amount}}}
backend: heap
checkpoint: {mendable: 3d, inline_threshold_bytes: 65536}
"""


def stored_files(deployment: Deployment) -> set[Path]:
    return {path for path in Path(deployment.storage_root).rglob("*") if path.is_file()}


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE)
    return new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")


@pytest.mark.parametrize("place", ["files", "s3"])
def test_a_stored_preview_is_taken_once_and_leaves_nothing(
    deployment: Deployment, place: str, request: pytest.FixtureRequest
) -> None:
    if place == "s3":
        deployment = replace(deployment, storage_root=f"s3://{request.getfixturevalue('bucket')}/state")
    pipeline, attempts = deployment.pipeline("sales"), [new_attempt(), new_attempt()]
    for attempt in attempts:
        store_preview(deployment, pipeline, attempt, f"→ {attempt}")
    directory = f"{deployment.root_uri().rstrip('/')}/sales/taskowned"
    assert len(deployment.remover().list_files(directory)) == 2
    for attempt in reversed(attempts):
        assert take_preview(deployment, pipeline, attempt) == f"→ {attempt}"
    assert deployment.remover().list_files(directory) == []
    assert place == "s3" or not stored_files(deployment)
    with pytest.raises(NotFoundError, match=r"sales: the preview of attempt [0-9a-f]{32} is not in"):
        take_preview(deployment, pipeline, attempts[0])


def test_the_orphan_sweep_removes_a_preview_that_nobody_took(deployment: Deployment) -> None:
    checkpoint_of(deployment, "sales", 1, pa.table({"shop": ["a"], "amount": [1]}))
    before = stored_files(deployment)
    store_preview(deployment, deployment.pipeline("sales"), new_attempt(), "text")
    assert stored_files(deployment) > before
    (swept,) = orphans(deployment, "sales", dry_run=False, force=True, grace_ms=0)
    assert len(swept.files) == 1
    assert stored_files(deployment) == before
