"""The table of expectations is the library's, and the user's are judged by it on the state's own columns."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from great_expectations import expectations as gxe

from statelib.definition.checks.names import MAX_NAME_BYTES
from statelib.definition.expectations import (
    COLUMN,
    COLUMNS,
    COUNT,
    EXPECTATIONS,
    MATCHES,
    NUMBER,
    PAIRS,
    PATTERN,
    PATTERNS,
    SEVERAL,
    SHARE,
    SWITCH,
    VALUES,
    class_name,
)
from statelib.model.quality import Severity
from statelib.quality.expected import expectation_frames
from statelib.quality.facts import StateSample, UserExpectation
from statelib.quality.validation import validate

TABLE = pa.table(
    {
        "guest": ["a", "b", "c", "d"],
        "visits": pa.array([1, 2, None, 4], pa.int64()),
        "stars": [1.0, 2.0, 3.0, 4.0],
        "large": pa.array([2**60 + 1, None, 1, 2], pa.int64()),
        "items": [["x"], [], ["x", "y"], ["z"]],
    }
)


@pytest.mark.parametrize("name", sorted(EXPECTATIONS))
def test_the_library_has_each_expectation_with_these_parameters(name: str) -> None:
    entry, result = EXPECTATIONS[name], getattr(gxe, class_name(name)).__fields__
    assert set(entry.parameters) <= set(result)
    needed = {field for field in result if result[field].required}
    assert needed <= set(entry.required), "what the library cannot do without, a pipeline file must say"
    bounds = {field for field in result if field.startswith(("min_", "max_", "strict_m", "mostly"))}
    assert bounds <= set(entry.parameters)


def expectation(expect: str, severity: Severity = Severity.FAIL, **parameters: object) -> UserExpectation:
    text = f"{expect}({', '.join(f'{k}={v}' for k, v in parameters.items())})"
    return UserExpectation("total", class_name(expect), text, parameters, severity, EXPECTATIONS[expect].all_rows)


def judge(tmp_path: Path, sample: StateSample, *wanted: UserExpectation) -> list[tuple[bool, int, tuple[str, ...]]]:
    validation = validate(expectation_frames(wanted, {"total": sample}))
    validation.write_pages(str(tmp_path))
    results = validation.results
    assert [r.name for r in results] == [w.text for w in wanted]
    assert [r.severity for r in results] == [w.severity for w in wanted]
    return [(r.passed, r.failed, r.sentences) for r in results]


def test_rows_that_fail_are_named_by_their_keys(tmp_path: Path) -> None:
    results = judge(
        tmp_path,
        StateSample("total", TABLE, ("guest",), 4),
        expectation("column_values_to_be_between", column="visits", min_value=2),
        expectation("column_values_to_not_be_null", Severity.WARN, column="visits"),
        expectation("column_mean_to_be_between", column="stars", max_value=2),
        expectation("column_sum_to_be_between", column="visits", min_value=7, max_value=7),
        expectation("table_row_count_to_equal", value=4),
        expectation("column_values_to_be_unique", column="guest"),
        expectation("column_values_to_be_in_set", column="guest", value_set=["a", "b", "c"], mostly=0.7),
    )  # fmt: skip
    between = "state total: column_values_to_be_between(column=visits, min_value=2)"
    assert results[0] == (False, 1, (f"{between}: visits 1.0, guest 'a'",))
    assert results[1][:2] == (False, 1)
    assert "guest 'c'" in results[1][2][0]
    assert results[2] == (
        False,
        1,
        ("state total: column_mean_to_be_between(column=stars, max_value=2): observed 2.5",),
    )
    assert [passed for passed, _, _ in results[3:]] == [True] * 4
    assert results[6][1] == 1, "one fails, mostly allows it"


def test_a_sample_is_noted_and_cannot_satisfy_an_expectation_about_all_rows(tmp_path: Path) -> None:
    results = judge(
        tmp_path,
        StateSample("total", TABLE, ("guest",), 9, (1, 2), "judged by a sample of 4 of 9 entries"),
        expectation("table_row_count_to_equal", value=4),
        expectation("column_values_to_be_unique", column="guest"),
    )
    note = "state total: judged by a sample of 4 of 9 entries"
    refusal = "state total: table_row_count_to_equal(value=4) needs all entries of the state"
    assert (results[0][0], results[0][2][1]) == (False, note)
    assert results[0][2][0].startswith(refusal)
    assert results[1] == (True, 0, (note,))


def test_an_expectation_about_a_missing_state_does_not_pass(tmp_path: Path) -> None:
    frames = expectation_frames([expectation("column_values_to_be_unique", column="guest")], {})
    (result,) = validate(frames).results
    assert not result.passed
    assert "has no such state" in result.sentences[0]


def test_an_expectation_that_cannot_be_evaluated_does_not_pass(tmp_path: Path) -> None:
    ((passed, _, sentences),) = judge(
        tmp_path,
        StateSample("total", TABLE, ("guest",), 4),
        expectation("column_mean_to_be_between", column="guest", min_value=0),
    )
    assert not passed
    assert "could not be evaluated" in sentences[0]


SAMPLE = {
    COLUMN: "stars",
    COLUMNS: ["stars", "visits"],
    NUMBER: 1,
    COUNT: 1,
    SHARE: 0.5,
    PATTERN: "x",
    PATTERNS: ["x"],
    MATCHES: "any",
    SWITCH: True,
    VALUES: [1.0],
    PAIRS: [[1.0, 1]],
    SEVERAL: ["guest", "stars"],
}
SPECIAL = {
    "column_A": "stars",
    "column_B": "visits",
    "column_list": ["guest", "stars"],
}


@pytest.mark.parametrize("column", ["guest", "stars", "visits", "large"])
@pytest.mark.parametrize("every", [False, True], ids=["required", "all"])
def test_every_expectation_can_be_evaluated_and_described(column: str, every: bool, tmp_path: Path) -> None:
    wanted = []
    for name, entry in EXPECTATIONS.items():
        texts = any(word in name for word in ("length", "json", "regex"))
        if texts != (column == "guest"):
            continue
        bound = {"min_value"} & set(entry.parameters)
        chosen = entry.parameters if every else {*entry.required, *bound}
        sums = name == "multicolumn_sum_to_equal"
        arguments = {p: SPECIAL.get(p, SAMPLE[entry.parameters[p]]) for p in chosen}
        arguments |= {"column": column} if "column" in chosen else {}
        arguments |= {"column_list": ["stars", "visits"]} if sums else {}
        wanted.append(expectation(name, **arguments))
    assert wanted
    results = judge(tmp_path, StateSample("total", TABLE, ("guest",), 4), *wanted)
    assert not [s for _, _, sentences in results for s in sentences if "could not be evaluated" in s]


def test_the_document_lists_every_expectation_of_the_table() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "gate.md").read_text()
    for name, entry in EXPECTATIONS.items():
        optional = [p for p in entry.parameters if p not in entry.required]
        row = f"| `{name}` | {', '.join(entry.required) or '-'} | {', '.join(optional) or '-'} |"
        assert row in text


@pytest.mark.parametrize("largest", ["0.25", "100000000000000.25", "123456789012345678901234567890.25"])
def test_one_large_decimal_does_not_change_what_the_others_are_equal_to(tmp_path: Path, largest: str) -> None:
    values = [Decimal("0.10"), Decimal("0.25"), Decimal(largest), None]
    columns = {"guest": ["a", "b", "c", "d"], "spent": pa.array(values, pa.decimal128(38, 2))}
    sample = StateSample("total", pa.table(columns), ("guest",), 4)
    results = judge(
        tmp_path,
        sample,
        expectation("column_values_to_not_be_in_set", column="spent", value_set=[0.1]),
        expectation("column_values_to_be_between", column="spent", min_value=0.1),
        expectation("column_distinct_values_to_contain_set", column="spent", value_set=[0.1, 0.25]),
        expectation("column_min_to_be_between", column="spent", min_value=0.1, max_value=0.1),
        expectation("column_mean_to_be_between", column="spent", min_value=0),
        expectation("column_sum_to_be_between", column="spent", min_value=0),
    )
    assert [(passed, failed) for passed, failed, _ in results] == [(False, 1)] + [(True, 0)] * 5


@pytest.mark.parametrize("larger", [1, 2])
def test_decimals_that_are_one_double_are_still_different_values(tmp_path: Path, larger: int) -> None:
    values = [Decimal("0.000000000000000001"), *(Decimal(10**18 + n) for n in (0, larger)), None]
    columns = {"guest": ["a", "b", "c", "d"], "spent": pa.array(values, pa.decimal128(38, 18))}
    sample = StateSample("total", pa.table(columns), ("guest",), 4)
    results = judge(
        tmp_path,
        sample,
        expectation("column_mean_to_be_between", column="spent", min_value=0),
        expectation("column_values_to_be_unique", column="spent"),
        expectation("column_unique_value_count_to_be_between", column="spent", min_value=3, max_value=3),
        expectation("compound_columns_to_be_unique", column_list=["spent", "guest"]),
    )
    assert [(passed, failed) for passed, failed, _ in results] == [(True, 0)] * 4


def test_the_page_of_exact_decimals_of_a_state_with_the_longest_name_is_written(tmp_path: Path) -> None:
    state, values = "s" * MAX_NAME_BYTES, [Decimal(10**18), Decimal(10**18 + 1)]
    sample = StateSample(state, pa.table({"spent": pa.array(values, pa.decimal128(38, 0))}), (), 2)
    wanted = replace(expectation("column_values_to_be_unique", column="spent"), state=state)
    validate(expectation_frames([wanted], {state: sample})).write_pages(str(tmp_path))
    assert [page for page in tmp_path.rglob("*.html") if "exact_0_sss" in page.name]


def test_pairs_of_decimals_that_are_one_double_are_different(tmp_path: Path) -> None:
    columns = {
        "guest": ["a"],
        "one": pa.array([Decimal(10**18)], pa.decimal128(20, 0)),
        "other": pa.array([Decimal(10**18 + 1)], pa.decimal128(38, 18)),
    }
    sample = StateSample("total", pa.table(columns), ("guest",), 1)
    results = judge(tmp_path, sample, expectation("column_pair_values_to_be_equal", column_A="one", column_B="other"))
    assert [(passed, failed) for passed, failed, _ in results] == [(False, 1)]


def test_decimals_are_compared_as_doubles(tmp_path: Path) -> None:
    columns = {
        "guest": ["a", "b", "c"],
        "spent": pa.array([Decimal("0.10"), Decimal("0.30"), None], pa.decimal128(38, 2)),
        "all_digits": pa.array([Decimal("123456789012345678.10"), Decimal(1), None], pa.decimal128(38, 2)),
    }
    sample = StateSample("total", pa.table(columns), ("guest",), 3)
    results = judge(
        tmp_path,
        sample,
        expectation("column_values_to_be_between", column="spent", min_value=0.1, max_value=0.3),
        expectation("column_values_to_be_between", column="spent", max_value=0.2),
        expectation("column_values_to_be_between", column="all_digits", max_value=2),
    )
    assert [(passed, failed) for passed, failed, _ in results] == [(True, 0), (False, 1), (False, 1)]
    assert "spent 0.3" in results[1][2][0]


@pytest.mark.parametrize("column", ["at", "local", "day"])
@pytest.mark.parametrize("bound", [date(2026, 1, 1), datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC)])
def test_a_column_of_times_is_compared_with_every_form_of_a_time(column: str, bound: date, tmp_path: Path) -> None:
    times = [datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), None]
    columns = {
        "guest": ["a", "b", "c"],
        "at": pa.array(times, pa.timestamp("ns", "UTC")),
        "local": pa.array(times, pa.timestamp("ns")),
        "day": pa.array([time and time.date() for time in times], pa.date32()),
    }
    results = judge(
        tmp_path,
        StateSample("total", pa.table(columns), ("guest",), 3),
        expectation("column_values_to_be_between", column=column, min_value=bound),
        expectation("column_values_to_be_between", column=column, max_value=bound),
        expectation("column_max_to_be_between", column=column, max_value=bound),
        expectation("column_values_to_be_in_set", column=column, value_set=[bound]),
        expectation("column_values_to_not_be_in_set", column=column, value_set=[bound]),
    )
    assert [(passed, failed) for passed, failed, _ in results] == [
        (True, 0), (False, 1), (False, 1), (False, 1), (False, 1),
    ]  # fmt: skip
    assert all("2026-01-02" in results[number][2][0] for number in (1, 3)), "the second day is not in the set"
    assert "2026-01-01" in results[4][2][0]
