"""The export of states as Parquet files, of which one cannot be read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, STRING
from statelib.savepoints.tables.parquet_files import export_parquet


class Damaged:
    """A snapshot with two states, of which the second one cannot be read."""

    def schema(self) -> KeyedStateSchema:
        states = tuple(StateDescriptor(name, StateKind.VALUE, LONG) for name in ("good", "bad"))
        return KeyedStateSchema(STRING, 128, states)

    def to_arrow(self, state: str, _scratch: str | None) -> pa.Table:
        if state == "bad":
            raise CorruptStateError("a byte has changed", kind="restore-mismatch")
        return pa.table({"value": [1, 2]})


def test_a_failed_export_leaves_no_file_behind(tmp_path: Path) -> None:
    opened: Any = Damaged()
    with pytest.raises(CorruptStateError):
        export_parquet(opened, None, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    assert export_parquet(opened, "good", tmp_path / "out"), "the same directory can be used again"


def test_columns_that_parquet_cannot_hold_are_refused_by_name(tmp_path: Path) -> None:
    class Fieldless(Damaged):
        def to_arrow(self, _state: str, _scratch: str | None) -> pa.Table:
            return pa.table({"value": pa.array([{"a": {}}], pa.struct([("a", pa.struct([]))]))})

    opened: Any = Fieldless()
    with pytest.raises(UnsupportedError, match="no child field") as caught:
        export_parquet(opened, "good", tmp_path / "out")
    assert caught.value.kind == "no-columns"
    assert list((tmp_path / "out").iterdir()) == []
