"""The expectations of Great Expectations that can be checked on a state, with the library's names and parameters.

With this table a pipeline file is checked without importing the library, which takes seconds. A test compares the table
with the library. Left out are expectations about the order of rows (state has none), about SQL, and about types of
columns (the pipeline file declares them), and ``column_quantile_values_to_be_between``, whose result the library itself
cannot serialize.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

COLUMN, COLUMNS, NUMBER, COUNT, SHARE = "a column", "a list of columns", "a number", "a whole number", "a share, 0 to 1"
SWITCH, VALUES, PAIRS, SEVERAL = "true or false", "a list", "a list of pairs", "a list of two or more columns"
PATTERN, PATTERNS, MATCHES = "a regular expression", "a list of regular expressions", "any or all"
"""The forms of a parameter, as error messages name them."""


@dataclass(frozen=True)
class SupportedExpectation:
    """The parameters of an expectation: the form of each, and the required ones. ``all_rows``: the expectation cannot
    be checked on a sample of the rows."""

    parameters: dict[str, str]
    required: tuple[str, ...]
    all_rows: bool = False


def _expectation(required: dict[str, str], optional: dict[str, str], *, all_rows: bool = False) -> SupportedExpectation:
    return SupportedExpectation({**required, **optional}, tuple(required), all_rows)


_COLUMN = {"column": COLUMN}
_PAIR = {"column_A": COLUMN, "column_B": COLUMN}
_LIST = {"column_list": COLUMNS}
_MOSTLY = {"mostly": SHARE}
_STRICT = {"strict_min": SWITCH, "strict_max": SWITCH}
_RANGE = {"min_value": NUMBER, "max_value": NUMBER, **_STRICT}
_COUNTS = {"min_value": COUNT, "max_value": COUNT, **_STRICT}
_SHARES = {"min_value": SHARE, "max_value": SHARE, **_STRICT}
_SET = {"value_set": VALUES}

EXPECTATIONS: dict[str, SupportedExpectation] = {
    "column_distinct_values_to_be_in_set": _expectation(_COLUMN | _SET, {}),
    "column_distinct_values_to_contain_set": _expectation(_COLUMN | _SET, {}, all_rows=True),
    "column_distinct_values_to_equal_set": _expectation(_COLUMN | _SET, {}, all_rows=True),
    "column_max_to_be_between": _expectation(_COLUMN, _RANGE),
    "column_mean_to_be_between": _expectation(_COLUMN, _RANGE),
    "column_median_to_be_between": _expectation(_COLUMN, _RANGE),
    "column_min_to_be_between": _expectation(_COLUMN, _RANGE),
    "column_most_common_value_to_be_in_set": _expectation(_COLUMN | _SET, {"ties_okay": SWITCH}),
    "column_pair_values_a_to_be_greater_than_b": _expectation(_PAIR, {"or_equal": SWITCH} | _MOSTLY),
    "column_pair_values_to_be_equal": _expectation(_PAIR, _MOSTLY),
    "column_pair_values_to_be_in_set": _expectation(_PAIR | {"value_pairs_set": PAIRS}, _MOSTLY),
    "column_proportion_of_non_null_values_to_be_between": _expectation(_COLUMN, _SHARES),
    "column_proportion_of_unique_values_to_be_between": _expectation(_COLUMN, _SHARES, all_rows=True),
    "column_stdev_to_be_between": _expectation(_COLUMN, _RANGE),
    "column_sum_to_be_between": _expectation(_COLUMN, _RANGE, all_rows=True),
    "column_unique_value_count_to_be_between": _expectation(_COLUMN, _COUNTS, all_rows=True),
    "column_value_lengths_to_be_between": _expectation(_COLUMN, _COUNTS | _MOSTLY),
    "column_value_lengths_to_equal": _expectation(_COLUMN | {"value": COUNT}, _MOSTLY),
    "column_value_z_scores_to_be_less_than": _expectation(
        _COLUMN | {"threshold": NUMBER, "double_sided": SWITCH}, _MOSTLY
    ),
    "column_values_to_be_between": _expectation(_COLUMN, _RANGE | _MOSTLY),
    "column_values_to_be_in_set": _expectation(_COLUMN | _SET, _MOSTLY),
    "column_values_to_be_json_parseable": _expectation(_COLUMN, _MOSTLY),
    "column_values_to_be_null": _expectation(_COLUMN, _MOSTLY),
    "column_values_to_be_unique": _expectation(_COLUMN, _MOSTLY),
    "column_values_to_match_regex": _expectation(_COLUMN | {"regex": PATTERN}, _MOSTLY),
    "column_values_to_match_regex_list": _expectation(
        _COLUMN | {"regex_list": PATTERNS}, {"match_on": MATCHES} | _MOSTLY
    ),
    "column_values_to_not_be_in_set": _expectation(_COLUMN | _SET, _MOSTLY),
    "column_values_to_not_be_null": _expectation(_COLUMN, _MOSTLY),
    "column_values_to_not_match_regex": _expectation(_COLUMN | {"regex": PATTERN}, _MOSTLY),
    "column_values_to_not_match_regex_list": _expectation(_COLUMN | {"regex_list": PATTERNS}, _MOSTLY),
    "compound_columns_to_be_unique": _expectation({"column_list": SEVERAL}, _MOSTLY),
    "multicolumn_sum_to_equal": _expectation(_LIST | {"sum_total": NUMBER}, _MOSTLY),
    "select_column_values_to_be_unique_within_record": _expectation(_LIST, _MOSTLY),
    "table_row_count_to_be_between": _expectation({}, _COUNTS, all_rows=True),
    "table_row_count_to_equal": _expectation({"value": COUNT}, {}, all_rows=True),
}
"""The expectations by name in snake case, without the prefix ``expect_``."""


def class_name(expectation: str) -> str:
    """Return the library's class name of an expectation, such as ``ExpectColumnValuesToBeBetween``."""
    words = ("expect", *expectation.split("_"))
    return "".join("ZScores" if word == "z" else word.capitalize() for word in words if word != "scores")


def parameter_problem(form: str, value: object) -> str:
    """Return the problem of a parameter's value, '' if the value has the form."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    right = {
        COLUMN: isinstance(value, str),
        COLUMNS: _all_texts(value),
        NUMBER: number or hasattr(value, "isoformat"),  # YAML's dates too
        COUNT: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        SHARE: number and 0 <= float(str(value)) <= 1,
        SEVERAL: _all_texts(value) and len(_items(value)) > 1,
        PATTERN: _is_pattern(value),
        PATTERNS: len(_items(value)) > 0 and all(map(_is_pattern, _items(value))),
        MATCHES: value in ("any", "all"),
        PAIRS: len(_items(value)) > 0 and all(len(_items(item)) == 2 for item in _items(value)),
        SWITCH: isinstance(value, bool),
        VALUES: len(_items(value)) > 0,
    }[form]
    return "" if right else f"expected {form}, found {value!r:.60}"


def problems_together(expectation: str, given: Mapping[str, object]) -> Iterator[str]:
    """Yield the problems of the parameters together: what is missing, and bounds that do not fit. Without a bound,
    nothing would be judged."""
    signature = EXPECTATIONS[expectation]
    yield from (f"{expectation} needs {missing!r}" for missing in signature.required if missing not in given)
    least, most = given.get("min_value"), given.get("max_value")
    if "min_value" in signature.parameters and least is None and most is None:
        yield f"{expectation} needs 'min_value' or 'max_value'"
    if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
        yield f"expected a min_value of at most max_value, found {least} and {most}"


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        re.compile(value)
    except re.error:
        return False
    return True


def _items(value: object) -> tuple[object, ...]:
    """Return the items of a list; none of anything else."""
    return tuple(value) if isinstance(value, list | tuple) else ()


def _all_texts(value: object) -> bool:
    return len(_items(value)) > 0 and all(isinstance(item, str) for item in _items(value))
