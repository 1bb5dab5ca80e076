"""Session windows of a real Flink, read from its log of changes: the content of each is computed from the job's
input.

The jobs sent numbers from 0 on, each with key ``number % 5`` and the moment that Java's Random gives for it, into
three windows with a gap of 40 s: one keeps the numbers, one their sum, one their count."""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statelib.definition.pipeline import Pipeline
from statelib.flows.views.query import query_snapshot
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.handles import ChangelogStateBackendHandleImpl
from statelib.model.key_groups import all_key_groups
from statelib.model.types import LONG
from statelib.restore.live.keyed import restore_heap
from statelib.savepoints.lines import export_all_lines
from statelib.savepoints.opened import open_checkpoint
from statelib.testing.local_run import LocalRun
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


PIPELINE = {
    "name": "p",
    "source": {"path": "{start}-{end}", "columns": {"k": "long", "n": "long", "t": "instant"}},
    "key": "k",
    "backend": "heap",
}
VALUES = {
    "list": {"kind": "list", "value": {"agg": "collect", "of": "n"}},
    "reduce": {"kind": "reducing", "value": {"agg": "sum", "of": "n"}},
    "aggregate": {"kind": "aggregating", "value": {"agg": "count"}},
}


def events(numbers: Iterable[int], seconds: int) -> pa.Table:
    """Return the events of a job. Numbers that it did not send lie between its sessions, and within them."""
    rows = [(number % KEYS, number, moment(number, seconds)) for number in numbers]
    keys, sent, moments = (pa.array(column, pa.int64()) for column in zip(*rows, strict=True))
    return pa.table({"k": keys, "n": sent, "t": moments.cast(pa.timestamp("ms", "UTC"))})


def plain(run: LocalRun) -> dict[object, object]:
    return {place: sorted(value) if isinstance(value, list) else value for place, value in run.state("own").items()}


@pytest.mark.parametrize("lateness", ["0s", "1h"])
@pytest.mark.parametrize("uid", VALUES)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_pipeline_continues_the_sessions_under_another_name(folder: Path, uid: str, lateness: str) -> None:
    """A lateness lets the timers that Flink set come before the windows are closed."""
    numbers, seconds = FOLDERS[folder]
    window = {"time": "t", "session": "40s", "allowed_lateness": lateness, "retain": "1h"}
    state = VALUES[uid] | {"window": window, "renamed_from": "window-contents"}
    pipeline = Pipeline.model_validate(PIPELINE | {"states": {"own": state}})
    (savepoint,) = folder.glob("savepoint-*")
    saved = open_checkpoint(str(savepoint)).select(operator_id(uid).hex())
    continued = LocalRun(pipeline, restore_heap(pipeline.schema(), all_key_groups(128), saved.sources()))
    alone = LocalRun(pipeline)
    alone.apply(events(range(numbers), seconds))
    assert plain(alone) != plain(continued), "Flink stores some contents under windows that were merged"
    end_ms = START_MS + seconds * 1000
    more = events(range(numbers, numbers + 40), seconds)
    for run in (alone, continued):
        run.apply(more, START_MS + seconds * 500)
        run.apply(more.slice(0, 0), end_ms + GAP_MS + 1)
    if lateness == "0s":
        assert plain(alone) == plain(continued) != {}, "all are closed"
    run_until = end_ms + GAP_MS + 3_600_000
    for run in (alone, continued):
        run.apply(more.slice(0, 0), run_until)
    assert plain(alone) == plain(continued)
    for run in (alone, continued):
        run.apply(more.slice(0, 0), run_until + 3_600_000)
        assert not any(run.state(each.name) for each in run.backend.schema.states)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_log_is_materialised_as_the_name_of_the_fixture_states(folder: Path) -> None:
    path = json.loads((folder / "about.json").read_text())["snapshots"][0]["path"]
    handles = [s.keyed for o in opened(folder, path, LONG).operators for _, s in o.subtasks if s.keyed]
    logs = [handle for handle in handles if isinstance(handle, ChangelogStateBackendHandleImpl)]
    assert len(logs) == 6
    assert {bool(handle.materialized) for handle in logs} == {folder.name.endswith("materialized")}
