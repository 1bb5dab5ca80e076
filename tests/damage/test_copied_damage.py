"""Damage in a savepoint must be found when it is written again; otherwise the new checksums would agree with the
damage."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from statelib.errors import CorruptStateError
from statelib.savepoints.writing.new_savepoint import NewSavepoint
from statelib.savepoints.writing.rewritten_savepoint import OperatorChange, rewrite
from tests.damage.harm import done, flipped
from tests.damage.ways import Stored, Way, stored


@pytest.fixture
def saved(tmp_path: Path) -> Stored:
    return stored(tmp_path / "world", Way("heap", "full", savepoint="canonical"))


@pytest.mark.parametrize("changes", [{}, {"shops": OperatorChange(drop=frozenset({"best"}))}])
def test_damage_is_detected_when_a_savepoint_is_rewritten(
    saved: Stored, tmp_path: Path, changes: Mapping[str, OperatorChange]
) -> None:
    path = saved.files[1]
    place = NewSavepoint(str(tmp_path / "again"), "again")
    with done(flipped(path, path.stat().st_size - 20, 0)), pytest.raises(CorruptStateError, match=path.name) as refused:
        rewrite(saved.open(), place, changes=changes)
    assert refused.value.kind == "checksum-mismatch"
    assert list((tmp_path / "again").rglob("*")) == []
    rewrite(saved.open(), place, changes=changes)
