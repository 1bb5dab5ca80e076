"""Session windows of a real Flink, read from its log of changes: the content of each is computed from the job's
input.

The jobs sent numbers from 0 on, each with key ``number % 5`` and the moment that Java's Random gives for it, into
three windows with a gap of 40 s: one keeps the numbers, one their sum, one their count."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelib.flows.views.query import query_snapshot
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.handles import ChangelogStateBackendHandleImpl
from statelib.model.types import LONG
from statelib.savepoints.lines import export_all_lines
from statelib.savepoints.opened import open_checkpoint
from tests.golden.flink_fixtures import ROOT, opened

FOLDERS = {
    ROOT / "2.3.0" / "hashmap-changelog-sessions": (120, 4000),
    ROOT / "2.3.0" / "rocksdb-changelog-sessions-materialized": (100, 1500),
}
"""The number of sent numbers, and the number of seconds within which their times lie, by fixture."""
KEYS, GAP_MS, START_MS = 5, 40_000, 1_700_000_000_000
Window = tuple[int, int]
DOCUMENT = ROOT.parents[2] / "docs" / "flink-compatibility.md"


def moment(number: int, seconds: int) -> int:
    """Return ``START_MS + new Random(number * 7 + 3).nextInt(seconds) * 1000L``."""
    seed = ((number * 7 + 3) ^ 0x5DEECE66D) & ((1 << 48) - 1)
    seed = (seed * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
    return START_MS + (seed >> 17) % seconds * 1000


def sessions(folder: Path) -> Iterator[tuple[int, Window, list[int]]]:
    """Return (key, window, its numbers) for each session window."""
    numbers, seconds = FOLDERS[folder]
    moments = [moment(number, seconds) for number in range(numbers)]
    for key in range(KEYS):
        held: list[int] = []
        end = 0
        for number in sorted(range(key, numbers, KEYS), key=moments.__getitem__):
            if held and moments[number] > end:
                yield key, (moments[held[0]], end), sorted(held)
                held = []
            held.append(number)
            end = moments[number] + GAP_MS
        yield key, (moments[held[0]], end), sorted(held)


def window(value: dict[str, Any]) -> Window:
    return value["start"], value["end"]


def stored(folder: Path, uid: str) -> list[tuple[int, Window, list[int]]]:
    """Return the same from the checkpoint, in which a window has its contents under one of the windows that were
    merged."""
    path = json.loads((folder / "about.json").read_text())["snapshots"][0]["path"]
    lines = map(json.loads, export_all_lines(opened(folder, path, LONG), None))
    contents: dict[tuple[int, Window], list[int]] = defaultdict(list)
    places = []
    for line in (line for line in lines if line["op"] == uid):
        if line["state"] == "window-contents":
            contents[line["key"]["v"], window(line["ns"])].append(line["value"]["v"])
        elif line["state"] == "merging-window-set":
            whole, place = line["value"]["v"]
            places.append((line["key"]["v"], window(whole), window(place)))
    assert len(places) == len(contents)
    return sorted((key, whole, sorted(contents[key, place])) for key, whole, place in places)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize(
    ("uid", "made"), [("list", list), ("reduce", lambda n: [sum(n)]), ("aggregate", lambda n: [len(n)])]
)
def test_windows_contain_the_numbers_that_were_sent(
    uid: str, made: Callable[[list[int]], list[int]], folder: Path
) -> None:
    expected = sorted((key, whole, made(numbers)) for key, whole, numbers in sessions(folder))
    assert sum(len(numbers) > 1 for _, _, numbers in sessions(folder)) > 10
    assert stored(folder, uid) == expected


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
@pytest.mark.parametrize(("uid", "made"), [("reduce", sum), ("aggregate", len)])
def test_the_query_of_the_document_has_the_sessions_of_a_savepoint(
    uid: str, made: Callable[[list[int]], int], folder: Path
) -> None:
    (query,) = re.findall(r"^```sql\n(.*?)^```", DOCUMENT.read_text(), re.DOTALL | re.MULTILINE)
    (savepoint,) = folder.glob("savepoint-*")
    result = query_snapshot(open_checkpoint(str(savepoint)).select(operator_id(uid).hex()), query, [])
    bounds = [
        result[name].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()) for name in ("session_start", "session_end")
    ]
    rows = zip(*(column.to_pylist() for column in (result["key"], *bounds, result["value"])), strict=True)
    assert sorted(rows) == sorted((key, *whole, made(numbers)) for key, whole, numbers in sessions(folder))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_log_is_materialised_as_the_name_of_the_fixture_states(folder: Path) -> None:
    path = json.loads((folder / "about.json").read_text())["snapshots"][0]["path"]
    handles = [s.keyed for o in opened(folder, path, LONG).operators for _, s in o.subtasks if s.keyed]
    logs = [handle for handle in handles if isinstance(handle, ChangelogStateBackendHandleImpl)]
    assert len(logs) == 6
    assert {bool(handle.materialized) for handle in logs} == {folder.name.endswith("materialized")}
