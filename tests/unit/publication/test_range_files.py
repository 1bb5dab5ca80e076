"""The files of a table per range of key groups, of which some hold no rows, or were rewritten by something else."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from statelib.model.key_groups import KeyGroupRange
from statelib.publication.parquet import range_files
from statelib.publication.parquet.manifest import TableFile
from statelib.publication.parquet.range_files import write_changed_files
from statelib.publication.target import Commit, Content, Write

SCHEMA = pa.schema([("k", pa.int64())])


class Numbers(Content):
    """A state whose keys are numbers below 4, each in the key group of its number."""

    schema = SCHEMA
    identity = ("k",)
    size_bytes = 4
    key_groups = KeyGroupRange(0, 3)

    def __init__(self, *numbers: int) -> None:
        self._numbers = numbers

    def fingerprint(self, key_groups: KeyGroupRange) -> str:
        return "-".join(map(str, self._of(key_groups))) or "empty"

    def write_rows(self, ranges: Sequence[KeyGroupRange], write: Callable[[int], Write]) -> None:
        for index, key_groups in enumerate(ranges):
            write(index)(pa.table({"k": pa.array(self._of(key_groups), pa.int64())}))

    def write_changes(self, commit: Commit, write: Write) -> None:
        raise NotImplementedError

    def _of(self, key_groups: KeyGroupRange) -> list[int]:
        return [number for number in self._numbers if number in key_groups]


class Files:
    """The prepared files of a commit, in a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self.directory = str(directory)

    def prefix(self, key_groups: KeyGroupRange, fingerprint: str) -> str:
        return f"{key_groups}-{fingerprint}-"

    def complete(self, name: str) -> None:
        """Do nothing: the file stays in the directory."""

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"


def written(directory: Path, content: Content, previous: Sequence[TableFile]) -> list[TableFile]:
    """Return the files of the next commit, without those that have no rows, as a table in Iceberg has them."""
    return [file for file in write_changed_files(Files(directory), content, SCHEMA, previous) if file.rows]


def rows_of(files: Sequence[TableFile]) -> list[int]:
    return sorted(number for file in files for number in pq.read_table(file.path)["k"].to_pylist())


@pytest.fixture(autouse=True)
def _two_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_files, "FILE_BYTES", 2)


@pytest.mark.parametrize("first", [(2, 3), (0, 1), ()])
def test_a_range_that_had_no_rows_is_written_later(tmp_path: Path, first: tuple[int, ...]) -> None:
    before = written(tmp_path / "1", Numbers(*first), ())
    after = written(tmp_path / "2", Numbers(0, 1, 2, 3), before)
    assert rows_of(after) == [0, 1, 2, 3]
    assert set(before) <= set(after), "files without a change stay"


def test_rows_of_a_rewritten_file_are_written_again(tmp_path: Path) -> None:
    low, high = written(tmp_path / "1", Numbers(0, 1, 2, 3), ())
    rewritten = TableFile(low.path, low.rows, low.size_bytes)
    assert rows_of(written(tmp_path / "2", Numbers(0, 1, 2, 3), (rewritten, high))) == [0, 1, 2, 3]


def test_one_part_of_a_range_that_was_rewritten_is_not_missed(tmp_path: Path) -> None:
    low, high = written(tmp_path / "1", Numbers(0, 1, 2, 3), ())
    other_part = TableFile(high.path, high.rows, high.size_bytes)
    files = written(tmp_path / "2", Numbers(0, 1, 2, 3), (low, high, other_part))
    assert not {low.path, high.path} & {file.path for file in files}
