"""Side data for user code, in one subtask."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from statelib.backends.operator.side_data import SideData, StoredSideData
from statelib.backends.operator.state import OperatorStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError
from statelib.model.checkpoint import SideDataRecord
from statelib.model.handles import ByteStreamStateHandle, FileStateHandle
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import KeyGroupRange
from statelib.snapshots.strategies.side_data import SideDataSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.testing.local_run import LocalRun


@dataclass
class CountingReader:
    """A reader of files whose content is their path. It records the paths that are read."""

    read_paths: list[str] = field(default_factory=list)

    def read(self, handle: FileStateHandle) -> memoryview:
        self.read_paths.append(handle.path)
        return memoryview(handle.path.rpartition("/")[2].encode())


def stored(reader: CountingReader, path: str, start: int, end: int) -> StoredSideData:
    handle = FileStateHandle(path, 1)
    return StoredSideData("model", KeyGroupRange(start, end), handle, None, path, reader, True)


def test_a_piece_is_read_only_when_it_is_used_and_only_once() -> None:
    reader = CountingReader()
    model = SideData("model", [stored(reader, "/x/first", 0, 5)])
    assert model.exists()
    assert reader.read_paths == []
    assert (model.read(), model.read()) == (b"first", b"first")
    assert reader.read_paths == ["/x/first"]


def test_written_data_replace_all_pieces() -> None:
    reader = CountingReader()
    model = SideData("model", [stored(reader, "/x/left", 0, 5), stored(reader, "/x/right", 6, 9)])
    with pytest.raises(InvalidRequestError, match="2 earlier subtasks") as caught:
        model.read()
    assert caught.value.kind == "several-side-data"
    assert model.read_all() == [b"left", b"right"]
    data = bytearray(b"new")
    model.write(data)
    data[:] = b"old"
    assert (model.read(), model.read_all()) == (b"new", [b"new"])
    model.delete()
    assert (model.exists(), model.read(), model.read_all()) == (False, None, [])
    model.write(b"")
    assert (model.exists(), model.read()) == (True, b"")


def test_equal_pieces_count_as_one() -> None:
    reader = CountingReader()
    pieces = [stored(reader, path, at, at) for at, path in enumerate(["/x/same", "/y/same", "/x/same"])]
    assert SideData("model", pieces).read() == b"same"
    assert reader.read_paths == ["/x/same", "/y/same"]


def test_only_bytes_can_be_written() -> None:
    with pytest.raises(InvalidRequestError, match="expected bytes, found str") as caught:
        SideData("model").write("text")
    assert caught.value.kind == "bad-side-data"


def test_only_declared_names_exist() -> None:
    with pytest.raises(InvalidRequestError, match="'models' is not declared: known are model, routes") as caught:
        OperatorStateBackend(side_data=[SideData("model"), SideData("routes")]).side_data("models")
    assert caught.value.kind == "unknown-side-data"


def test_a_snapshot_contains_the_data_at_the_time_of_its_preparation() -> None:
    model = SideData("model")
    model.write(b"before")
    strategy = SideDataSnapshotStrategy(OperatorStateBackend(side_data=[model]), KeyGroupRange(0, 9), refers=True)
    frozen = strategy.prepare(CheckpointId(1))
    model.write(b"after")
    assert [content.written for content in frozen.contents] == [b"before"]


def test_data_inside_metadata_are_kept_without_reading_the_storage() -> None:
    handle = ByteStreamStateHandle("model", b"small")
    piece = StoredSideData("model", KeyGroupRange(0, 4), handle, None, "", CountingReader(), False)
    backend = OperatorStateBackend(side_data=[SideData("model", [piece])])
    strategy = SideDataSnapshotStrategy(backend, KeyGroupRange(0, 9), refers=False)
    result = take_snapshot(strategy, CheckpointId(1), None, CloseableRegistry())
    assert result.side_data == (SideDataRecord("model", KeyGroupRange(0, 4), handle),)
    assert (result.streams, result.reused) == ((), ())


def test_a_local_run_keeps_side_data() -> None:
    pipeline = Pipeline.model_validate(
        {
            "name": "p",
            "source": {"path": "{start}-{end}", "columns": {"shop": "string"}},
            "key": "shop",
            "states": {
                "seen": {
                    "kind": "value",
                    "fields": {"seen_before": "boolean"},
                    "function": "tests.integration.learning_functions:update",
                }
            },
            "side_data": ["model", "days"],
            "backend": "heap",
        }
    )
    run = LocalRun(pipeline)
    for shops in (["a"], ["b", "a"]):
        run.apply(pa.table({"shop": shops}))
    assert run.operator.side_data("days").read() == b"2"
    assert run.state("seen") == {"a": {"seen_before": True}, "b": {"seen_before": False}}
