"""The file of a preview in a bucket: it is read and removed as on a file system."""

from dataclasses import replace
from pathlib import Path

import pytest

from statelib.errors import NotFoundError
from statelib.flows.mending.preview_file import store_preview, take_preview
from statelib.storage.registry import new_attempt
from tests.support.worlds import new_deployment

PIPELINE = """\
name: sales
source: {path: "{data}/{start}-{end}", columns: {shop: string, amount: long}}
key: shop
states: {total: {kind: value, value: {agg: sum, of: amount}}}
backend: heap
checkpoint: {mendable: 3d}
"""


def test_a_preview_in_a_bucket_is_taken_once_and_leaves_nothing(bucket: str, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "sales.yaml").write_text(PIPELINE)
    local = new_deployment(tmp_path, tmp_path, tmp_path / "pipelines")
    deployment = replace(local, storage_root=f"s3://{bucket}/state")
    pipeline, attempts = deployment.pipeline("sales"), [new_attempt(), new_attempt()]
    for attempt in attempts:
        store_preview(deployment, pipeline, attempt, f"→ {attempt}")
    directory = f"s3://{bucket}/state/sales/taskowned"
    assert len(deployment.remover().list_files(directory)) == 2
    for attempt in attempts:
        assert take_preview(deployment, pipeline, attempt) == f"→ {attempt}"
    assert deployment.remover().list_files(directory) == []
    with pytest.raises(NotFoundError, match="the preview of attempt"):
        take_preview(deployment, pipeline, attempts[0])
