"""Only checkpoints in the deployment's own storage may have files outside their own directory."""

import pytest

from statelib.savepoints.own_directories import pipeline_directory


@pytest.mark.parametrize("root", ["file:///srv/state", "s3://bucket/root", "s3://bucket"])
def test_only_checkpoints_in_the_deployments_storage_share_files(root: str) -> None:
    assert pipeline_directory(f"{root}/flights/chk-7", root) == f"{root}/flights"
    assert pipeline_directory(f"{root}/flights/chk-7", f"{root}/") == f"{root}/flights"
    for elsewhere in ("savepoint-flights-7", "x/chk-7", "chk"):
        assert pipeline_directory(f"{root}/flights/{elsewhere}", root) is None
    assert pipeline_directory(f"{root}-2/flights/chk-7", root) is None
    assert pipeline_directory(f"{root}/chk-7", root) is None
    assert pipeline_directory(f"{root}/flights/chk-7", None) is None


def test_a_plain_path_is_the_same_storage_as_its_uri() -> None:
    assert pipeline_directory("file:///srv/state/flights/chk-7", "/srv/state") == "file:///srv/state/flights"
