"""A rebuild looks at the directories of pipelines and savepoints, and at nothing else in the storage's root."""

from pathlib import Path

import pytest

from statelib.errors import InvalidRequestError
from statelib.flows.recovery.published import on_storage
from statelib.storage.filesystem.removal import FileSystemRemover
from statelib.storage.ports.inventory import StoredFile
from tests.support.worlds import new_deployment


def test_an_unreadable_directory_of_the_volume_does_not_end_a_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A volume has a directory ``lost+found`` that only root may read."""
    listing = FileSystemRemover.list_files

    def of_others(remover: FileSystemRemover, directory: str) -> list[StoredFile]:
        files = listing(remover, directory)
        if any("lost+found" in f"{directory}/{file.path}" for file in files):
            raise InvalidRequestError(f"listing {directory}: Permission denied", kind="storage-denied")
        return files

    deployment = new_deployment(tmp_path, tmp_path)
    for name in ("lost+found/#12", "tally/chk-7/data", "savepoints/savepoint-tally-9/data"):
        (tmp_path / "state" / name).parent.mkdir(parents=True)
        (tmp_path / "state" / name).touch()
    monkeypatch.setattr(FileSystemRemover, "list_files", of_others)
    stored = on_storage(deployment)
    assert (stored.highest, stored.savepoints) == ({"tally": 7}, {"tally": {9}})
