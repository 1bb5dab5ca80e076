"""A session that was closed takes no event, also if the allowed lateness becomes longer while it is retained."""

import pyarrow as pa

from statelib.definition.pipeline import Pipeline
from statelib.testing.local_run import LocalRun

MINUTE, HOUR = 60_000, 3_600_000
COUNTED = {"fields": {"events": {"agg": "count"}}}


def pipeline(lateness: str, **state: object) -> Pipeline:
    window = {"time": "t", "session": "10m", "allowed_lateness": lateness, "retain": "30d"}
    return Pipeline.model_validate(
        {
            "name": "p",
            "source": {"path": "{start}-{end}", "columns": {"k": "string", "t": "instant", "v": "long"}},
            "key": "k",
            "states": {"visits": {"kind": "value", "window": window, **(state or COUNTED)}},
            "outputs": {"ended": {"closed": "visits"}},
            "backend": "heap",
        }
    )


def events(*times: int) -> pa.Table:
    moments = pa.array(times, pa.int64()).cast(pa.timestamp("ms", "UTC"))
    return pa.table(
        {"k": pa.array(["a"] * len(times), pa.string()), "t": moments, "v": pa.nulls(len(times), pa.int64())}
    )


def with_more_lateness(run: LocalRun) -> LocalRun:
    return LocalRun(pipeline("1d"), run.backend, run.watermark_ms)


def emitted(run: LocalRun) -> list[int]:
    return run.output("ended")["events"].to_pylist()


def test_a_closed_session_is_emitted_once():
    before = LocalRun(pipeline("0s"))
    before.apply(events(0), 10 * MINUTE)
    assert emitted(before) == [1]
    after = with_more_lateness(before)
    after.apply(events(0), 2 * HOUR)
    assert after.late == {"visits": 1}
    after.apply(events(), 40 * HOUR)
    assert emitted(after) == []
    assert after.state("visits") == {("a", 0, 10 * MINUTE): {"events": 1}}


def test_a_session_whose_only_value_is_null_is_emitted():
    run = LocalRun(pipeline("0s", value={"agg": "max", "of": "v"}))
    three = events(0, 20 * MINUTE, 40 * MINUTE)
    run.apply(three.set_column(2, "v", pa.array([None, 5, None], pa.int64())), HOUR)
    rows = run.output("ended")
    assert rows["window_start"].cast(pa.int64()).to_pylist() == [0, 20 * MINUTE, 40 * MINUTE]
    assert rows[rows.column_names[-1]].to_pylist() == [None, 5, None]


def test_a_session_that_grows_does_not_replace_a_closed_one():
    before = LocalRun(pipeline("0s"))
    before.apply(events(0, 5 * MINUTE, 9 * MINUTE), HOUR)
    after = with_more_lateness(before)
    after.apply(events(0), 2 * HOUR)
    after.apply(events(9 * MINUTE), 3 * HOUR)
    closed = {("a", 0, 19 * MINUTE): {"events": 3}}
    assert after.state("visits") == closed | {("a", 0, 10 * MINUTE): {"events": 1}}
    after.apply(events(), 40 * HOUR)
    assert emitted(after) == [1]
    assert after.late == {"visits": 1}
