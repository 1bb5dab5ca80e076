"""The tool that reads a directory of snapshots distinguishes complete, refused and damaged ones."""

import shutil
from pathlib import Path

import pytest

from tests.golden.test_flink_written_again import ROOT
from tools.flink_corpus import main, outcome_of, snapshots_in

SAVED = ROOT / "2.3.0" / "lazy-hashmap" / "savepoint-000000-b399ead6d30a"


@pytest.mark.parametrize(
    ("fixture", "form", "result"),
    [
        ("1.12.5/older-rocksdb", "canonical", "whole"),
        ("1.20.5/kryo-hashmap-canonical", "canonical", "whole, some values as bytes"),
        ("1.20.5/kinds-hashmap-native-p2", "heap", "whole"),
        ("1.20.5/opstate-canonical-p2", "no keyed state", "whole"),
    ],
)
def test_complete_snapshots_are_read(fixture: str, form: str, result: str) -> None:
    (path, *_) = snapshots_in(ROOT / fixture)
    outcome = outcome_of(path)
    assert (outcome.form, outcome.result, outcome.faults) == (form, result, [])
    assert outcome.entries > 0


def test_the_exit_status_is_that_of_the_worst_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(str(tmp_path)) == 1  # There is nothing to read.
    shutil.copytree(SAVED, tmp_path / "flink2.3" / "savepoint")
    (tmp_path / "single-file").write_bytes((SAVED / "_metadata").read_bytes()[:4] + bytes(100))
    assert main(str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert "1  2.3          canonical                whole\n" in printed
    assert "1  refused: no-metadata\n" in printed
    stream = next(path for path in (tmp_path / "flink2.3" / "savepoint").iterdir() if path.name != "_metadata")
    stream.write_bytes(stream.read_bytes()[:-1])
    assert main(str(tmp_path)) == 1
    assert f"FAULT {stream.parent}\n" in capsys.readouterr().out
