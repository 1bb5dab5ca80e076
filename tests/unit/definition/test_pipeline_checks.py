"""``checks:`` as it is read: shares, severities, and expectations with their own parameters."""

from pathlib import Path

import pytest

from statelib.definition.checks.quality import split_field
from statelib.definition.expectations import EXPECTATIONS, class_name
from statelib.definition.parts.quality import Checks
from statelib.definition.pipeline import Pipeline, load_pipeline
from statelib.model.quality import GateSummary, QualityResult, Severity, verdict

TEXT = """\
name: sales
source: {path: "{start}-{end}", columns: {shop: string, amount: long, t: instant}}
key: [shop]
states:
  total: {kind: value, fields: {sold: {agg: count}, mean: {agg: avg, of: amount}}}
backend: heap
checks:
  drift:
    entries: {most: 20%, severity: quarantine}
    size_bytes: {most: 1.5}
    null_rate: {total.sold: {most: 0.05}}
    distribution: {total.mean: {}}
  expectations:
    - {state: total, expect: column_values_to_be_in_set, column: shop, value_set: [a, b], mostly: 0.9, severity: warn}
    - {state: total, expect: column_mean_to_be_between, column: mean.sum, min_value: 2013-01-01}
  rehearse_every: 10
"""


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    path = tmp_path / "sales.yaml"
    path.write_text(TEXT)
    return load_pipeline(path)


def test_checks_are_read_with_their_severities(pipeline: Pipeline) -> None:
    checks = pipeline.checks
    drift = checks.drift
    assert drift.entries is not None
    assert drift.size_bytes is not None
    assert (drift.entries.most, drift.entries.level) == (0.2, Severity.QUARANTINE)
    assert (drift.size_bytes.most, drift.size_bytes.level) == (1.5, Severity.WARN)
    assert (drift.null_rate["total.sold"].most, drift.distribution["total.mean"].psi, drift.history) == (0.05, 0.2, 7)
    first, second = checks.expectations
    assert first.parameters == {"column": "shop", "value_set": ["a", "b"], "mostly": 0.9}
    assert first.describe() == "column_values_to_be_in_set(column=shop, value_set=['a', 'b'], mostly=0.9)"
    assert (first.level, second.level) == (Severity.WARN, Severity.FAIL)
    assert (checks.rehearse_every, checks.sample_rows) == (10, 100_000)


def test_a_pipeline_with_checks_equals_its_copy(pipeline: Pipeline) -> None:
    again = Pipeline.model_validate(pipeline.model_dump())
    assert again == pipeline
    assert hash(again) == hash(pipeline)
    assert again.checks.expectations[0].parameters == pipeline.checks.expectations[0].parameters


def test_without_checks_only_completeness_is_judged() -> None:
    nothing = Checks()
    assert (nothing.drift.entries, nothing.expectations, nothing.rehearse_every) == (None, (), None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.b", ("a", "b")),
        ("a.b.c", ("a.b", "c")),
        ("a.x.c", ("a", "x.c")),
        ("c.d", ("", "")),
        ("a", ("", "")),
    ],
)
def test_a_column_is_named_by_its_state_and_field(name: str, expected: tuple[str, str]) -> None:
    assert split_field(name, {"a": 1, "a.b": 1}) == expected


def test_each_expectation_has_the_class_name_of_the_library() -> None:
    assert class_name("column_value_z_scores_to_be_less_than") == "ExpectColumnValueZScoresToBeLessThan"
    assert class_name("column_pair_values_a_to_be_greater_than_b") == "ExpectColumnPairValuesAToBeGreaterThanB"
    assert len({class_name(name) for name in EXPECTATIONS}) == len(EXPECTATIONS)


def test_the_most_severe_failure_decides() -> None:
    def result(severity: Severity, *, passed: bool) -> QualityResult:
        return QualityResult("g", "n", severity, passed, 1, 0)

    warned, aside = result(Severity.WARN, passed=False), result(Severity.QUARANTINE, passed=False)
    assert verdict([]) is None
    assert verdict([result(Severity.FAIL, passed=True)]) is None
    assert verdict([warned, result(Severity.FAIL, passed=True)]) is Severity.WARN
    assert verdict([warned, aside, warned]) is Severity.QUARANTINE
    assert verdict([result(Severity.FAIL, passed=False), aside]) is Severity.FAIL
    assert GateSummary(5, 0, 2).passed
    assert not GateSummary(5, 1, 0).passed
