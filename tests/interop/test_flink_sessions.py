"""Session windows of a pipeline, continued by a real Flink, and those of a real Flink, continued by a pipeline."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.flows.checkpoint.steps import register
from statelib.flows.savepoint.steps import begin_savepoint
from statelib.formats.metadata.operator_id import operator_id
from statelib.model.key_groups import all_key_groups
from statelib.model.types import STRING
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.savepoints.opened import Checkpoint, open_checkpoint
from statelib.testing.local_run import LocalRun
from tests.interop.flink_kit import Flink, NoFlink, SessionOrder, Sessions, flink
from tests.support.extent import TEST_ALL
from tests.support.worlds import checkpoint_of, day, new_deployment, publish_here

PIPELINE = """\
name: visits
source: {path: "{data}/{start}-{end}", columns: {k: string, n: long, t: instant}}
key: k
states:
  window-contents:
    kind: KIND
    value: {agg: AGG, of: n}
    window: {time: t, session: 50m, allowed_lateness: 3h, retain: 0s}
backend: BACKEND
parallelism: 3
checkpoint: {strategy: STRATEGY}
"""
KINDS = {
    "reducing": ("sum", "rocksdb", "incremental"),
    "aggregating": ("avg", "heap", "canonical"),
    "list": ("collect", "rocksdb", "changelog"),
}
"""The aggregate of each kind of state, and the backend and the strategy of its pipeline."""
MINUTE = 60_000
GAP_MS, LATENESS_MS = 50 * MINUTE, 180 * MINUTE
FIRST, REST = (1, 2), (3, 4)
"""The days before the savepoint, and the days after it."""
KEYS, EVENTS = 7, 150
VERSIONS = ["1.20.5", "2.3.0"]
"""Each test runs with one of them, and with STATELIB_TEST_ALL=1 with both."""
Window = tuple[int, int]
Event = tuple[int, int]
"""A number, which its key follows from, and its time."""


@pytest.fixture(scope="module")
def real_flink(request: pytest.FixtureRequest) -> Flink:
    try:
        return flink(request.param)
    except NoFlink as reason:
        pytest.skip(str(reason))


def events(number: int) -> list[Event]:
    """Return the events of a day, the newest first. Some are of the evening before."""
    random = np.random.default_rng(number)
    times = day(number).start_ms + random.integers(-8 * 60, 24 * 60, EVENTS) * MINUTE
    numbers = random.permutation(EVENTS * 20)[:EVENTS] - EVENTS * 10
    return sorted(zip(numbers.tolist(), times.tolist(), strict=True), key=lambda event: -event[1])


def table(number: int) -> pa.Table:
    numbers, times = zip(*events(number), strict=True)
    keys = [f"é{n % KEYS}" for n in numbers]
    moments = pa.array(times, pa.timestamp("ms", "UTC")).cast(pa.timestamp("ns", "UTC"))
    return pa.table({"k": keys, "n": pa.array(numbers, pa.int64()), "t": moments})


def elements(days: Sequence[int]) -> list[tuple[int | None, int]]:
    """Return the events of the days with a watermark at the end of each, after the watermark of the day before."""
    stream: list[tuple[int | None, int]] = [(None, day(days[0]).start_ms - 1)] if days[0] > 1 else []
    for number in days:
        stream += [*events(number), (None, day(number).end_ms - 1)]
    return stream


def pipeline_file(root: Path, kind: str) -> Path:
    agg, backend, strategy = KINDS[kind]
    (directory := root / kind / "pipelines").mkdir(parents=True)
    text = PIPELINE.replace("KIND", kind).replace("AGG", agg).replace("BACKEND", backend)
    (file := directory / "visits.yaml").write_text(text.replace("STRATEGY", strategy))
    return file


def saved_by_statelib(root: Path, kind: str) -> Checkpoint:
    """Apply the first days, and take a canonical savepoint."""
    directory = pipeline_file(root, kind).parent
    deployment = new_deployment(root / kind, root / kind, directory)
    for number in FIRST:
        checkpoint_of(deployment, "visits", number, table(number))
    pipeline = deployment.pipeline("visits")
    begun = begin_savepoint(deployment, pipeline, format="canonical", target=None, note="", owner="test", key="k")
    publish_here(deployment, pipeline, begun.checkpoint_id)
    return open_checkpoint(register(deployment, pipeline, begun.checkpoint_id).directory)


def run(real: Flink, root: Path, days: Sequence[int], *starts: tuple[str, str, str | None]) -> list[Sessions]:
    """Run a job for each (kind, backend, savepoint)."""
    orders = [
        SessionOrder(kind, "visits", GAP_MS, LATENESS_MS, backend, 2, root / f"{i}", elements(days), savepoint)
        for i, (kind, backend, savepoint) in enumerate(starts)
    ]
    return real.run_sessions(orders)


def of_flink(savepoint: str) -> Checkpoint:
    opened = open_checkpoint(savepoint.removeprefix("file:"), key_type=STRING)
    return opened.select(operator_id("visits").hex())


def bounds(window: dict[str, Any]) -> Window:
    start, end = (round(window[name].timestamp() * 1000) for name in ("start", "end"))
    return start, end


def plain(value: Any) -> Any:
    """Return contents in the form in which Flink and statelib are compared: the order of a list has no meaning."""
    return sorted(value) if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else value


def sessions_of(contents: dict[Any, Any], windows: dict[Any, Any]) -> list[Any]:
    """Return key, window and contents of each open session, through the mapping from windows to their contents."""
    rest = {place: plain(value) for place, value in contents.items()}
    pairs = [(key, bounds(pair["f0"]), bounds(pair["f1"])) for key, of_key in windows.items() for pair in of_key]
    result = sorted((key, window, rest.pop((key, *place))) for key, window, place in pairs)
    assert not rest, "there are no contents without a window"
    return result


def sessions(saved: Checkpoint) -> list[Any]:
    rows = saved.to_arrow("window-contents").to_pylist()
    contents = {(row["key"], *bounds(row["namespace"])): row["value"] for row in rows}
    return sessions_of(contents, {row["key"]: row["value"] for row in saved.to_arrow("merging-window-set").to_pylist()})


def sessions_in(run: LocalRun) -> list[Any]:
    return sessions_of(run.state("window-contents"), run.state("merging-window-set"))


def timers(saved: Checkpoint) -> list[Any]:
    rows = saved.to_arrow("_timer_state/event_window-timers").to_pylist()
    return sorted((row["key"], bounds(row["namespace"]), row["timestamp"]) for row in rows)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("real_flink", VERSIONS if TEST_ALL else VERSIONS[1:], indirect=True)
def test_flink_continues_the_sessions_of_a_pipeline_as_it_continues_its_own(tmp_path: Path, real_flink: Flink) -> None:
    ours = {kind: saved_by_statelib(tmp_path, kind) for kind in KINDS}
    begun = run(real_flink, tmp_path / "first", FIRST, *((kind, "hashmap", None) for kind in KINDS))
    starts = []
    for (kind, own), theirs in zip(ours.items(), begun, strict=True):
        assert sessions(own) == sessions(of_flink(theirs.savepoint)) != []
        assert timers(own) == timers(of_flink(theirs.savepoint))
        starts += [
            (kind, "hashmap", theirs.savepoint),
            *((kind, each, own.directory) for each in ("hashmap", "rocksdb")),
        ]
    results = run(real_flink, tmp_path / "rest", REST, *starts)
    for at in range(0, len(results), 3):
        expected, *continued = results[at : at + 3]
        assert any(line.startswith("late") for line in expected.lines)
        for result in continued:
            assert result.lines == expected.lines
            assert sessions(of_flink(result.savepoint)) == sessions(of_flink(expected.savepoint)) != []
            assert timers(of_flink(result.savepoint)) == timers(of_flink(expected.savepoint))


def continued(root: Path, pipeline: Pipeline, saved: Checkpoint) -> list[LocalRun]:
    """Return runs of the pipeline that continue a savepoint, one per backend."""
    schema, whole = pipeline.schema(), all_key_groups(128)
    backends = (
        restore_heap(schema, whole, saved.sources(), f"{root}/heap"),
        restore_rocksdb(schema, whole, saved.sources(), f"{root}/rocksdb", "5a7b0000-0000-0000-0000-000000000000"),
    )
    return [LocalRun(pipeline, backend, day(FIRST[-1]).end_ms - 1) for backend in backends]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("real_flink", VERSIONS if TEST_ALL else VERSIONS[:1], indirect=True)
def test_a_pipeline_continues_the_sessions_of_flink_as_it_continues_its_own(tmp_path: Path, real_flink: Flink) -> None:
    begun = run(real_flink, tmp_path / "first", FIRST, *((kind, "rocksdb", None) for kind in KINDS))
    ended = run(real_flink, tmp_path / "all", (*FIRST, *REST), *((kind, "hashmap", None) for kind in KINDS))
    for kind, theirs, ending in zip(KINDS, begun, ended, strict=True):
        pipeline, saved = load_pipeline(pipeline_file(tmp_path, kind)), of_flink(theirs.savepoint)
        pairs = [pair for of_key in saved.to_arrow("merging-window-set")["value"].to_pylist() for pair in of_key]
        assert any(pair["f0"] != pair["f1"] for pair in pairs), "Flink stores some contents under other windows"
        alone, restored = LocalRun(pipeline), continued(tmp_path / kind, pipeline, saved)
        for number in FIRST:
            alone.apply(table(number), day(number).end_ms)
        late = alone.late["window-contents"]
        assert sessions(saved) == sessions_in(alone) == sessions_in(restored[0])
        for number in REST:
            for each in (alone, *restored):
                each.apply(table(number), day(number).end_ms)
        expected = of_flink(ending.savepoint)
        assert sessions_in(alone) == sessions(expected) != []
        assert alone.late["window-contents"] == sum(line.startswith("late") for line in ending.lines) > late
        for each in restored:
            assert sessions_in(each) == sessions_in(alone)
            assert each.late["window-contents"] == alone.late["window-contents"] - late
            event_timers = "_timer_state/event_window-timers"
            assert each.state(event_timers) == alone.state(event_timers)
            each.backend.close()
