"""Task-owned state beyond the contract of every storage: it stays where it is, and copies are no links."""

import os
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError, InvalidRequestError
from statelib.model.handles import FileStateHandle
from statelib.model.ids import AttemptId, PipelineName
from statelib.storage.filesystem.reader import DirectoryReader
from statelib.storage.filesystem.storage import FileSystemCheckpointStorage
from statelib.storage.names import is_task_owned
from statelib.storage.objects.reader import ObjectReader
from statelib.storage.ports.views import StateReader
from statelib.storage.retries import IMPATIENT
from statelib.storage.uris import local_path

ATTEMPT = AttemptId("0" * 32)
NAME = "0" * 32 + "-0-0"


@pytest.mark.parametrize(
    ("reader", "path"),
    [
        (DirectoryReader("/away/savepoint-flights-1"), f"file:///state/flights/taskowned/{NAME}"),
        (ObjectReader("s3://away/savepoint-flights-1", IMPATIENT), f"s3://state/flights/taskowned/{NAME}"),
        (ObjectReader("az://away/savepoint-flights-1", IMPATIENT), f"az://state/flights/taskowned/{NAME}"),
    ],
    ids=["files", "s3", "az"],
)
def test_a_moved_snapshot_with_task_owned_files_is_refused(reader: StateReader, path: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        reader.locate(FileStateHandle(path, 5))
    assert caught.value.kind == "task-owned"
    assert path.removeprefix("file://") in caught.value.message
    assert "--relocate" in (caught.value.hint or "")


def test_task_owned_files_are_read_in_their_original_place() -> None:
    handle = FileStateHandle(f"file:///state/flights/taskowned/{NAME}", 5)
    reader = DirectoryReader("/state/flights/chk-1", allowed_root="/state/flights")
    assert reader.locate(handle) == ("/state/flights", ("taskowned", NAME))


@pytest.mark.parametrize(
    ("path", "owned"),
    [
        (f"file:///state/flights/taskowned/{NAME}", True),
        (f"s3://b/flights/taskowned/{NAME}", True),
        ("/state/taskowned", False),
        (f"/state/nottaskowned/{NAME}", False),
        (NAME, False),
    ],
)
def test_a_file_is_task_owned_if_its_directory_is(path: str, owned: bool) -> None:
    assert is_task_owned(path) is owned


def test_a_duplicate_is_a_separate_file(tmp_path: Path) -> None:
    """A hard link would change when its user writes to the file in place."""
    storage = FileSystemCheckpointStorage(str(tmp_path / "state"), PipelineName("flights"), 0)
    mine = tmp_path / "mine"
    mine.write_bytes(b"12345")
    (tmp_path / "state").mkdir()
    tools = storage.create_task_owned_checkpoint_state_toolset(ATTEMPT, 0)
    (copy,) = tools.duplicate([FileStateHandle(f"file://{mine}", 5)])
    assert isinstance(copy, FileStateHandle)
    with mine.open("r+b") as file:
        file.write(b"xxxxx")
    path = Path(local_path(copy.path))
    assert path.read_bytes() == b"12345"
    assert os.stat(path).st_nlink == 1


def test_links_are_not_followed(tmp_path: Path) -> None:
    storage = FileSystemCheckpointStorage(str(tmp_path / "state"), PipelineName("flights"), 0)
    (tmp_path / "state").mkdir()
    (tmp_path / "real").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    tools = storage.create_task_owned_checkpoint_state_toolset(ATTEMPT, 0)
    with pytest.raises(CorruptStateError, match="duplicating") as caught:
        tools.duplicate([FileStateHandle(f"file://{tmp_path}/link", 5)])
    assert caught.value.kind == "not-a-regular-file"
    assert not list((tmp_path / "state").rglob("*-*"))


def test_only_task_owned_files_are_discarded(tmp_path: Path) -> None:
    storage = FileSystemCheckpointStorage(str(tmp_path), PipelineName("flights"), 0)
    tools = storage.create_task_owned_checkpoint_state_toolset(ATTEMPT, 0)
    place = f"file://{tmp_path}/flights"
    for path in (
        f"{place}/shared/{NAME}",
        f"{place}/taskowned/../shared/{NAME}",
        f"{place}/taskowned/x",
        "/etc/passwd",
    ):
        with pytest.raises(InvalidRequestError) as caught:
            tools.discard(FileStateHandle(path, 5))
        assert caught.value.kind == "foreign-file"
