"""An export of a real Flink's snapshot is, text for text, the state that the jobs themselves recorded."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from statelib.errors import StatelibError, UnsupportedError
from statelib.model.types import LONG
from statelib.savepoints.lines import export_all_lines
from statelib.savepoints.opened import open_checkpoint
from tests.golden.flink_fixtures import ROOT, opened


def snapshots() -> Iterator[tuple[Path, str, str]]:
    """Return (folder, path in it, truth file) of every snapshot of every fixture."""
    for about in sorted(ROOT.glob("*/*/about.json")):
        for snapshot in json.loads(about.read_text())["snapshots"]:
            yield about.parent, snapshot["path"], snapshot["truth"]


SNAPSHOTS = list(snapshots())
KRYO, MAPS = (ROOT / "1.20.5" / name for name in ("kryo-hashmap-canonical", "mapnull-hashmap-native"))


def exported(folder: Path, path: str) -> list[str]:
    """Return the exported lines of the operators that the job recorded, which are all but Flink's own sources. Uids
    replace the operators' ids. The lines are sorted as Java sorts text, by units of UTF-16."""
    about = json.loads((folder / "about.json").read_text())
    uids = {hex_id: uid for uid, hex_id in about["operatorIds"].items()}
    recorded_uids = {operator["uid"] for operator in about["operators"]}
    lines = []
    for line in export_all_lines(opened(folder, path, LONG), None):
        name, at = json.JSONDecoder().raw_decode(line, len('{"op":'))
        uid = uids.get(name, name)
        if uid in recorded_uids:
            lines.append('{"op":' + json.dumps(uid, ensure_ascii=False) + line[at:])
    return sorted(lines, key=lambda line: line.encode("utf-16-be"))


def truth_of(folder: Path, truth: str = "truth.jsonl") -> list[str]:
    return [line for line in (folder / truth).read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.parametrize(
    ("folder", "path", "truth"),
    [snapshot for snapshot in SNAPSHOTS if snapshot[0] != KRYO],
    ids=lambda part: part.name if isinstance(part, Path) else part.rpartition("/")[2][:6],
)
def test_the_exported_lines_are_those_of_the_job(folder: Path, path: str, truth: str) -> None:
    assert exported(folder, path) == truth_of(folder, truth)


def test_the_fixtures_include_all_forms_of_snapshots_and_values() -> None:
    assert len(SNAPSHOTS) >= 80
    text = "".join("\n".join(truth_of(folder, truth)) for folder, _, truth in SNAPSHOTS)
    for type_ in ("pojo", "rowdata", "enum", "bigdecimal", "timewindow", "globalwindow", "instant", "char", "tuple2"):
        assert f'"type":"{type_}"' in text
    for kind in ("eventTimer", "procTimer", "opList", "opUnion", "broadcast", "value", "list", "map", "aggregating"):
        assert f'"kind":"{kind}"' in text


def test_values_that_only_their_serializer_can_read_are_exported_as_bytes() -> None:
    def place(line: str) -> str:
        return json.dumps({k: v for k, v in json.loads(line).items() if k != "value"})

    lines = exported(KRYO, "")
    assert sorted(map(place, lines)) == sorted(map(place, truth_of(KRYO)))
    values = [json.loads(line)["value"] for line in lines]
    assert {value["type"] for value in values} == {"opaque"}
    assert all(value["serializer"].endswith("KryoSerializer") and value["hex"] for value in values)


def test_a_row_kind_that_no_column_can_hold_is_exported_but_in_no_table() -> None:
    assert any('"kind":"-D"' in line for line in exported(MAPS, ""))
    with pytest.raises(UnsupportedError, match="RowKind") as caught:
        list(opened(MAPS).tables("mr"))
    assert caught.value.kind == "row-kind"


def test_no_file_outside_the_new_place_is_opened(tmp_path: Path) -> None:
    folder = ROOT / "1.20.5" / "rocksdb-incremental-chain"
    path = SNAPSHOTS[[folder for folder, _, _ in SNAPSHOTS].index(folder)][1]
    old = "file:///flink-data/1.20.5/1.20.5/rocksdb-incremental-chain"
    for moves in ({}, {old: str(tmp_path)}, {old + "/checkpoints/x": str(folder)}):
        with pytest.raises(StatelibError) as caught:
            list(export_all_lines(open_checkpoint(str(folder / path), relocate=moves), None))
        assert caught.value.kind in ("outside-root", "missing-file")
