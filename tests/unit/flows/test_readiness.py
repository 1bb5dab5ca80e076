"""When the events of an interval are complete: every rule by itself, all together, and the texts about what is
missing."""

from datetime import UTC, datetime
from typing import Any

import pytest

from statelib.definition.pipeline import Pipeline
from statelib.definition.source.readiness import ReadyRule, ready_rules
from statelib.flows.checkpoint.readiness import missing, summary
from statelib.model.checkpoint import DataInterval
from statelib.storage.source_listing import SourceListing

DAY_MS = 86_400_000
FIRST = datetime(2026, 1, 1, tzinfo=UTC)
START_MS = int(FIRST.timestamp() * 1000)
NOT_THERE = SourceListing(False, 0, None)


def rule_of(ready: dict[str, Any] | None, days: int = 1, **source: Any) -> ReadyRule | None:
    of_it = {"path": "{data}/{start:%Y-%m-%d}", "columns": {"k": "string"}, "ready": ready, **source}
    pipeline = Pipeline.model_validate(
        {
            "name": "p",
            "source": of_it,
            "key": "k",
            "backend": "heap",
            "schedule": {"cron": "@daily", "start": FIRST},
            "states": {"n": {"kind": "value", "value": {"agg": "count"}}},
        }
    )
    rules = ready_rules(pipeline, "/d", DataInterval(START_MS, START_MS + days * DAY_MS))
    return rules[0] if rules else None


def found_missing(
    rule: ReadyRule | None, existing: dict[str, int | None], now_ms: int = START_MS + 2 * DAY_MS
) -> list[str]:
    """Return what the rule misses. ``there``: the time of the newest change under each path, in ms after the end of
    the first interval; None for a directory without files. The rule is written to JSON and read back, as a trigger's
    is."""
    assert rule is not None

    def look(path: str) -> SourceListing:
        if path not in existing:
            return NOT_THERE
        newest = existing[path]
        return SourceListing(True, 1, None if newest is None else START_MS + DAY_MS + newest)

    return missing(ReadyRule.from_json(rule.to_json()), look, lambda: now_ms)


def test_without_a_rule_a_run_does_not_wait() -> None:
    assert rule_of(None) is None


def test_a_marker_file_makes_an_interval_complete() -> None:
    rule = rule_of({"marker": "_SUCCESS"})
    assert found_missing(rule, {}) == ["/d/2026-01-01 does not exist"]
    assert found_missing(rule, {"/d/2026-01-01": 0}) == ["/d/2026-01-01/_SUCCESS does not exist"]
    assert found_missing(rule, {"/d/2026-01-01": 0, "/d/2026-01-01/_SUCCESS": 0}) == []
    elsewhere = rule_of({"marker": "{data}/done/{end:%Y%m%d}"})
    assert found_missing(elsewhere, {"/d/2026-01-01": 0}) == ["/d/done/20260102 does not exist"]
    assert found_missing(elsewhere, {"/d/2026-01-01": 0, "/d/done/20260102": 0}) == []


def test_the_marker_of_a_pattern_is_in_its_directory() -> None:
    path = "{data}/{start:%Y-%m-%d}/*.parquet"
    rule = rule_of({"marker": "_SUCCESS"}, path=path)
    files, marker = "/d/2026-01-01/*.parquet", "/d/2026-01-01/_SUCCESS"
    assert found_missing(rule, {files: 0}) == [f"{marker} does not exist"]
    assert found_missing(rule, {files: 0, marker: 0}) == []
    optional = rule_of({"marker": "_SUCCESS", "min_age": "1s"}, path=path, on_missing="empty")
    assert found_missing(optional, {}) == []
    assert found_missing(optional, {"/d/2026-01-01": None}) == [f"{marker} does not exist"]


def test_files_must_have_the_minimum_age() -> None:
    rule = rule_of({"min_age": "10m"})
    at_the_end = START_MS + DAY_MS
    young = found_missing(rule, {"/d/2026-01-01": 0}, at_the_end + 599_999)
    assert young == ["/d/2026-01-01 changed 599 s ago, expected 600 s or more"]
    assert found_missing(rule, {"/d/2026-01-01": 0}, at_the_end + 600_000) == []
    empty = found_missing(rule, {"/d/2026-01-01": None}, at_the_end + 1000)
    assert empty == ["/d/2026-01-01 ended 1 s ago, expected 600 s or more"]


def test_the_directory_of_the_next_interval_makes_an_interval_complete() -> None:
    rule = rule_of({"next_interval": True})
    text = "/d/2026-01-02, of the interval after it, does not exist"
    assert found_missing(rule, {"/d/2026-01-01": 0}) == [text]
    assert found_missing(rule, {"/d/2026-01-01": 0, "/d/2026-01-02": None}) == []


def test_a_wide_interval_needs_every_part() -> None:
    rule = rule_of({"marker": "_SUCCESS", "next_interval": True}, days=3)
    existing: dict[str, int | None] = {f"/d/2026-01-0{day}": 0 for day in (1, 2, 3)}
    existing |= {f"/d/2026-01-0{day}/_SUCCESS": 0 for day in (1, 3)}
    assert found_missing(rule, existing) == [
        "/d/2026-01-02/_SUCCESS does not exist", "/d/2026-01-04, of the interval after it, does not exist",
    ]  # fmt: skip
    long = found_missing(rule_of({"marker": "_SUCCESS"}, days=31), {})
    assert len(long) == 31
    assert summary(long).endswith("; 26 more")


def test_an_optional_path_may_be_missing_if_all_other_rules_hold() -> None:
    """A run does not wait for files in the path; all other rules have to hold before the interval counts as one
    without events."""
    rule = rule_of({"marker": "_SUCCESS", "next_interval": True}, on_missing="empty")
    assert found_missing(rule, {}) == ["/d/2026-01-02, of the interval after it, does not exist"]
    assert found_missing(rule, {"/d/2026-01-02": 0}) == []
    begun = found_missing(rule, {"/d/2026-01-01": 0, "/d/2026-01-02": 0})
    assert begun == ["/d/2026-01-01/_SUCCESS does not exist"]
    aged = rule_of({"min_age": "1h"}, on_missing="empty")
    assert found_missing(aged, {}, START_MS + DAY_MS + 1) == ["/d/2026-01-01 ended 0 s ago, expected 3600 s or more"]
    assert found_missing(aged, {}, START_MS + DAY_MS + 3_600_000) == []
    elsewhere = rule_of({"marker": "{data}/done/{start:%Y-%m-%d}"}, on_missing="empty")
    assert found_missing(elsewhere, {}) == ["/d/done/2026-01-01 does not exist"]


@pytest.mark.parametrize(
    ("ready", "source", "expected"),
    [
        ({}, {}, "expected one of marker, min_age, next_interval and asset"),
        ({"marker": "{day}"}, {}, "unknown placeholder"),
        ({"marker": "_SUCCESS"}, {"on_missing": "empty"}, "has no marker either"),
        ({"min_age": "0s"}, {}, "more than 0"),
        ({"min_age": "1s", "timeout": "0s"}, {}, "more than 0"),
    ],
)
def test_a_rule_without_effect_is_refused(ready: dict[str, Any], source: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        rule_of(ready, **source)
