"""The restores that `make bench` measures beside the DataFrame: a running Flink restores the state and changes
nothing, and Flink writes its own file."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from statelib.savepoints.opened import open_checkpoint
from tests.benchmarks.measure import table
from tests.benchmarks.rows import flink_restore
from tests.interop import flink_kit
from tests.interop.flink_kit import Flink
from tests.support.stored_longs import UID, long_columns, store_longs

ENTRIES = 300_000


def test_flink_restores_all_entries_and_writes_them_back(tmp_path: Path, flink_1: Flink) -> None:
    ours = store_longs(tmp_path / "state", ENTRIES, 2)
    with flink_1.warm() as cluster:
        answer = cluster.restore(ours, UID, "long", 2, target=tmp_path / "out")
        theirs = Path(str(answer["savepoint"]).removeprefix("file:"))
        assert [cluster.restore(path, UID, "long", 1)["entries"] for path in (ours, theirs)] == [ENTRIES] * 2
        with pytest.raises(RuntimeError, match=r"must be compatible|StateMigration"):
            cluster.restore(theirs, UID, "string", 1)
    read, right = open_checkpoint(str(theirs)).select(UID).to_arrow("counts"), long_columns(ENTRIES)
    assert read.num_rows == ENTRIES
    assert [pc.sum(read[name]) for name in ("key", "value")] == [pc.sum(right[name]) for name in ("key", "value")]


def test_without_flink_the_row_has_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert flink_kit.shutil.which("java") is None
    (row,) = flink_restore.run((), tmp_path, 1, 0.001)
    assert "no java on the path" in table([row])
    assert "ratio" not in row.to_json()
