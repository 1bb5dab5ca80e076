"""``first`` and ``last`` that keep nulls, or take several columns of one event, against a loop over single events:
in both backends, in windows, with time to live, through every strategy, restore, rescaling and change of the file."""

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from statelib.backends.heap.backend import HeapKeyedStateBackend
from statelib.backends.keyed import KeyedStateBackend
from statelib.backends.rocksdb.backend import RocksDBKeyedStateBackend
from statelib.backends.wrappers.changelog import ChangelogKeyedStateBackend
from statelib.definition.pipeline import Pipeline
from statelib.model.ids import CheckpointId
from statelib.model.key_groups import all_key_groups
from statelib.restore.live.keyed import restore_heap, restore_rocksdb
from statelib.snapshots.strategies.canonical import CanonicalSnapshotStrategy
from statelib.snapshots.strategies.changelog import ChangelogSnapshotStrategy, MaterializationLimits
from statelib.snapshots.strategies.rocksdb.incremental import RocksDBIncrementalSnapshotStrategy
from statelib.snapshots.strategy import take_snapshot
from statelib.storage.closeables import CloseableRegistry
from statelib.storage.ports.views import CheckpointedStateScope
from statelib.testing.checkpoint_chain import CheckpointChain
from statelib.testing.local_run import LocalRun
from statelib.testing.subtask_run import SubtaskRun
from tests.support.extent import examples

UID = "5a7b0000-0000-0000-0000-000000000000"
COLUMNS = {
    "k": "string",
    "u": "string",
    "name": "string",
    "score": "double",
    "on": "boolean",
    "lsn": "long",
    "t": "instant",
}
MS = pa.timestamp("ms", "UTC")
TYPES = [pa.string(), pa.string(), pa.string(), pa.float64(), pa.bool_(), pa.int64(), MS]
HOUR = 3_600_000
Event = dict[str, Any]

ROW = ["name", "score", "on"]
WINDOW = {"time": "t", "tumbling": "1h", "retain": "2h"}
FIELDS: dict[str, dict[str, Any]] = {
    "kept": {"agg": "last", "of": "name", "by": "lsn", "nulls": "keep"},
    "first_kept": {"agg": "first", "of": "score", "by": "lsn", "nulls": "keep"},
    "skipped": {"agg": "last", "of": "name", "by": "lsn", "nulls": "skip"},
    "row": {"agg": "last", "of": ROW, "by": ["lsn"]},
    "first_row": {"agg": "first", "of": ROW, "by": ["lsn", "t"]},
}
STATES: dict[str, dict[str, Any]] = {
    "fields": {"kind": "value", "fields": FIELDS},
    "mirror": {"kind": "value", "value": FIELDS["row"]},
    "live": {"kind": "value", "value": FIELDS["kept"], "ttl": "365d"},
    "per_u": {"kind": "map", "user_key": "u", "value": FIELDS["row"]},
    "hourly": {"kind": "aggregating", "value": FIELDS["row"], "window": WINDOW},
}

EVENT = st.fixed_dictionaries(
    {
        "k": st.sampled_from("abcdefgh"),
        "u": st.sampled_from("xy"),
        "name": st.none() | st.sampled_from(["", "p", "q"]),
        "score": st.none() | st.sampled_from([-1.0, 0.0, 2.5]),
        "on": st.none() | st.booleans(),
        "lsn": st.none() | st.integers(0, 4),
        "t": st.integers(0, 90).map(lambda minutes: minutes * 60_000),
    }
)
INTERVALS = st.lists(st.lists(EVENT, max_size=15), min_size=1, max_size=4)


def pipeline(states: dict[str, Any] = STATES, backend: str = "heap") -> Pipeline:
    source = {"path": "{start}-{end}", "columns": COLUMNS}
    document = {"name": "p", "source": source, "key": "k", "states": states, "backend": backend}
    return Pipeline.model_validate(document)


def table(events: Iterable[Event]) -> pa.Table:
    columns = [pa.array([event[name] for event in events], type_) for name, type_ in zip(COLUMNS, TYPES, strict=True)]
    return pa.table(columns, names=list(COLUMNS))


def ordered(value: object) -> tuple[bool, object]:
    """Return a sort key with null before all values."""
    return value is not None, value if value is not None else 0


def picked(events: list[Event], field: dict[str, Any]) -> object:
    """Return the value after applying one event after the other: a better event replaces the stored one."""
    by = [field["by"]] if isinstance(field["by"], str) else field["by"]
    several = isinstance(field["of"], list)
    columns = field["of"] if several else [field["of"]]
    skips = not several and field.get("nulls") != "keep"
    held: Event | None = None
    for event in events:
        if any(event[name] is None for name in by) or (skips and event[columns[0]] is None):
            continue
        place, other = ([ordered(e[name]) for name in (*by, *columns)] for e in (event, held or event))
        if held is None or (place > other if field["agg"] == "last" else place < other):
            held = event
    if held is None:
        return None
    value = {name: held[name] for name in columns} if several else held[columns[0]]
    order = {f"by_{name}": held[name] for name in by}
    return {"value": value, **order}


def grouped(events: list[Event], *names: str) -> dict[Any, list[Event]]:
    groups: dict[Any, list[Event]] = {}
    for event in events:
        groups.setdefault(tuple(event[name] for name in names), []).append(event)
    return groups


def expected(name: str, events: list[Event], states: dict[str, Any] = STATES) -> dict[Any, Any]:
    """Return the content of one state after the events."""
    state = states[name]
    if "fields" in state:
        rows = grouped(events, "k").items()
        return {k: {f: picked(result, field) for f, field in state["fields"].items()} for (k,), result in rows}
    if name == "per_u":
        maps: dict[Any, Any] = {}
        for (k, u), result in grouped(events, "k", "u").items():
            if (value := picked(result, state["value"])) is not None:
                maps.setdefault(k, {})[u] = value
        return maps
    if name == "hourly":
        hours = grouped([{**event, "hour": event["t"] // HOUR * HOUR} for event in events], "k", "hour").items()
        values = {(k, hour, hour + HOUR): picked(e, state["value"]) for (k, hour), e in hours}
    else:
        values = {k: picked(e, state["value"]) for (k,), e in grouped(events, "k").items()}
    return {place: value for place, value in values.items() if value is not None}


def plain(value: Any) -> Any:
    """Return times as epoch ms, as the events have them."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return round(value.timestamp() * 1000) if hasattr(value, "timestamp") else value


def same(run: LocalRun | SubtaskRun, events: list[Event], states: dict[str, Any] = STATES) -> None:
    for name in states:
        assert {k: plain(v) for k, v in run.state(name).items()} == expected(name, events, states), name


STEPS = st.tuples(
    st.sampled_from(["canonical", "full", "incremental"]), st.sampled_from(["heap", "rocksdb"]), st.integers(1, 3)
)


@settings(deadline=None, max_examples=examples(12))
@given(INTERVALS, st.lists(STEPS, min_size=4, max_size=4))
def test_checkpoints_restores_and_rescaling_change_nothing(
    intervals: list[list[Event]], steps: list[tuple[str, str, int]]
) -> None:
    with tempfile.TemporaryDirectory() as root:
        backend, seen = steps[0][1], list[Event]()
        run = SubtaskRun(pipeline(), Path(root), backend)
        for events, (strategy, next_backend, parallelism) in zip(intervals, steps, strict=False):
            run.apply(table(events), 0)
            seen += events
            backend = "heap" if backend == "heap" and strategy != "canonical" else next_backend
            run.checkpoint(strategy, backend, parallelism)
            same(run, seen)
        run.close()


@settings(deadline=None, max_examples=examples(6))
@given(INTERVALS, st.sampled_from(["heap", "rocksdb"]))
def test_a_log_of_changes_gives_the_same_state(intervals: list[list[Event]], kind: str) -> None:
    definition, whole, shared = pipeline(), all_key_groups(128), CheckpointedStateScope.SHARED
    with tempfile.TemporaryDirectory() as root:
        inner: KeyedStateBackend = HeapKeyedStateBackend(definition.schema(), whole)
        made: Any = CanonicalSnapshotStrategy(inner, scope=shared)
        if kind == "rocksdb":
            inner = RocksDBKeyedStateBackend(definition.schema(), whole, f"{root}/live", UID)
            made = RocksDBIncrementalSnapshotStrategy(inner, UID, private_scope=shared)
        logging = ChangelogKeyedStateBackend(inner, 1 << 24)
        strategy = ChangelogSnapshotStrategy(logging, UID, made, MaterializationLimits(1 << 24, 9))
        run, chain, seen = LocalRun(definition, logging), CheckpointChain(Path(root) / "storage"), list[Event]()
        for number, events in enumerate(intervals, 1):
            run.apply(table(events), 0)
            seen += events
            result = take_snapshot(strategy, CheckpointId(number), chain.streams(number), CloseableRegistry())
            strategy.notify_checkpoint_complete(CheckpointId(number))
            source = chain.source(number, result, logging)
            restore: Any = restore_heap if kind == "heap" else restore_rocksdb
            more = () if kind == "heap" else (f"{root}/back-{number}", UID)
            back = restore(definition.schema(), whole, [source], *more)
            same(LocalRun(definition, back), seen)
            back.close()
        strategy.close()
        logging.close()


@settings(deadline=None, max_examples=examples(6))
@given(st.lists(EVENT, max_size=15), st.lists(EVENT, max_size=15), st.sampled_from(["heap", "rocksdb"]))
def test_a_changed_pipeline_file_continues_from_the_stored_state(
    before: list[Event], after: list[Event], backend: str
) -> None:
    """A stored null is replaced by the next value once nulls are skipped; a new column is null until an event has
    it."""
    old: dict[str, Any] = {
        "s": {"kind": "value", "fields": {"x": FIELDS["kept"], "row": {**FIELDS["row"], "of": ["name", "on"]}}}
    }
    new: dict[str, Any] = {
        "s": {
            "kind": "value",
            "fields": {"x": FIELDS["skipped"], "row": {**FIELDS["row"], "of": ["name", "on", "score"]}},
        }
    }
    with tempfile.TemporaryDirectory() as root:
        run = SubtaskRun(pipeline(old), Path(root), backend)
        run.apply(table(before), 0)
        held = expected("s", before, old)
        run.pipeline = pipeline(new)
        run.checkpoint("canonical", backend, 2)
        run.apply(table(after), 0)
        fields = new["s"]["fields"]
        for (k,) in grouped(after, "k"):
            stored = held.get(k) or {"x": None, "row": None}
            now = [event for event in after if event["k"] == k]
            wanted = {name: picked(now, field) for name, field in fields.items()}
            stored_events = [_as_event(stored["x"], "name")] if stored["x"] and stored["x"]["value"] is not None else []
            assert run.state("s")[k]["x"] == picked([*stored_events, *now], fields["x"])
            candidates = [row for row in (_widened(stored["row"]), wanted["row"]) if row is not None]
            best = max(candidates, key=_place, default=None)
            assert run.state("s")[k]["row"] == best
        run.close()


def _as_event(accumulator: dict[str, Any], column: str) -> Event:
    return {column: accumulator["value"], "lsn": accumulator["by_lsn"]}


def _widened(accumulator: dict[str, Any] | None) -> dict[str, Any] | None:
    return accumulator and {**accumulator, "value": {**accumulator["value"], "score": None}}


def _place(accumulator: dict[str, Any]) -> list[Any]:
    return [accumulator["by_lsn"], *(ordered(accumulator["value"][name]) for name in ("name", "on", "score"))]
