"""The only module that uses Great Expectations: it evaluates frames of rules and builds the pages of the report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from statelib.model.amounts import amount
from statelib.model.quality import QualityResult
from statelib.quality.deferred import deferred, without
from statelib.quality.masking import masked
from statelib.quality.rules import AllowedValues, AtMost, Check, Equal, FoundRow, Frame, Library, Unanswerable

# Only a few expectations of distributions need altair and scipy, which take a quarter of the whole import time.
# Spark is not used for validation.
with deferred("altair", "scipy.stats"), without("pyspark"):
    import great_expectations as gx
    from great_expectations import expectations as gxe
    from great_expectations.core import ExpectationSuite, ExpectationValidationResult
    from great_expectations.data_context import EphemeralDataContext
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults
    from great_expectations.datasource.fluent import PandasDatasource

_SITE = "checkpoint"
MOST_SENTENCES = 10
"""The number of failures of one expectation that get a sentence each. The others are only counted."""


@dataclass(frozen=True, eq=False)
class Validation:
    """The results of all checks. The pages of the report are made from the context of the library."""

    results: tuple[QualityResult, ...]
    _context: EphemeralDataContext

    def write_pages(self, directory: str) -> None:
        """Write the pages of the report (a Data Docs site) into ``directory``, a local path."""
        _mask_results(self._context)
        self._context.add_data_docs_site(_SITE, _site(directory))
        self._context.build_data_docs()


def validate(frames: Sequence[Frame]) -> Validation:
    """Return the results of all checks of all frames, in order. Nothing is written."""
    context = gx.get_context(mode="ephemeral", project_config=_config())
    source = context.data_sources.add_pandas("checkpoint")
    results: list[QualityResult] = []
    for frame in frames:
        by_check = _validate(context, source, frame)
        results += [_result_of(frame, check, by_check.get(check.name)) for check in frame.checks]
    return Validation(tuple(results), context)


def _mask_results(context: EphemeralDataContext) -> None:
    """Mask the stored results, because templates write them into pages without escaping them."""
    store = context.validation_results_store
    for key in store.list_keys():
        store.update(key, store.deserialize(masked(store.get(key).to_json_dict())))


def _validate(
    context: EphemeralDataContext, source: PandasDatasource, frame: Frame
) -> Mapping[str | None, ExpectationValidationResult]:
    """Return the results of the library by the name of the check. The library returns them in another order."""
    answerable = [check for check in frame.checks if not isinstance(check.rule, Unanswerable)]
    if not answerable:
        return {}
    batch = source.add_dataframe_asset(frame.name).add_batch_definition_whole_dataframe(frame.name)
    suite = ExpectationSuite(name=frame.name, expectations=[_expectation(check) for check in answerable])
    validation = gx.ValidationDefinition(name=frame.name, data=batch, suite=context.suites.add(suite))
    has_user_checks = any(isinstance(check.rule, Library) for check in answerable)
    result = context.validation_definitions.add(validation).run(
        batch_parameters={"dataframe": frame.table},
        result_format={
            # The rows of a state may be many, so only some of the failing rows are returned.
            "result_format": "SUMMARY" if has_user_checks else "COMPLETE",
            "partial_unexpected_count": MOST_SENTENCES,
            "unexpected_index_column_names": list(frame.keys),
            "return_unexpected_index_query": False,
        },
    )
    return {one.expectation_config.description: one for one in result.results if one.expectation_config}


def _config() -> DataContextConfig:
    return DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        analytics_enabled=False,
        progress_bars={"globally": False},
    )


def _site(directory: str) -> dict[str, object]:
    return {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": directory},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "show_cta_footer": False},
        # The pages of the suites would repeat the content of the results; nothing is profiled.
        "site_section_builders": {"expectations": "none", "profiling": "none"},
    }


def _expectation(check: Check) -> gxe.Expectation:
    match check.rule:
        case Equal(expected, actual):
            return gxe.ExpectColumnPairValuesToBeEqual(
                column_A=expected, column_B=actual, ignore_row_if="either_value_is_missing", description=check.name
            )
        case AtMost(column, limit):
            return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
                column_A=limit, column_B=column, or_equal=True, ignore_row_if="neither", description=check.name
            )
        case AllowedValues(column, values):
            return gxe.ExpectColumnValuesToBeInSet(column=column, value_set=list(values), description=check.name)
        case Library(name, parameters):
            return getattr(gxe, name)(**parameters, description=check.name)
        case Unanswerable():
            raise AssertionError("an unanswerable check is not evaluated")


def _result_of(frame: Frame, check: Check, outcome: ExpectationValidationResult | None) -> QualityResult:
    """Return the result of one check. ``outcome``: the result of the library, None for an unanswerable check."""
    rows = len(frame.table)
    if isinstance(check.rule, Unanswerable):
        sentences = (check.rule.reason, *frame.notes)
        return QualityResult(frame.name, check.name, check.severity, False, 0, 0, sentences)
    assert outcome is not None, "every answerable check was evaluated"
    result, passed = outcome.result, bool(outcome.success)
    checked = int(result.get("element_count", rows))
    failed = int(result.get("unexpected_count", 0 if passed else 1))
    sentences = frame.notes if passed else (*_failure_sentences(frame, check, outcome), *frame.notes)
    return QualityResult(frame.name, check.name, check.severity, passed, checked, failed, tuple(sentences))


def _failure_sentences(frame: Frame, check: Check, outcome: ExpectationValidationResult) -> Iterable[str]:
    """Return the problems as sentences, at most :data:`MOST_SENTENCES` and a sentence that counts the others."""
    result = outcome.result
    problem = _exception(outcome)
    if isinstance(check.rule, Library):
        return _library_sentences(frame, check, outcome)
    if "unexpected_index_list" not in result:
        return (f"{check.name}: could not be evaluated: {problem}",)
    sentences = list(_sentences(check, result["unexpected_index_list"]))
    if len(sentences) > MOST_SENTENCES:
        more = f"{check.name}: {amount(len(sentences) - MOST_SENTENCES, 'more failure')} in the report"
        return [*sentences[:MOST_SENTENCES], more]
    return sentences


def _library_sentences(frame: Frame, check: Check, outcome: ExpectationValidationResult) -> Iterable[str]:
    """Yield a sentence per failing row, with its keys; or one sentence with the value observed for a whole column."""
    result = outcome.result
    rows = result.get("partial_unexpected_index_list") or []
    if rows:
        yield from (check.describe(row) for row in rows[:MOST_SENTENCES])
        more = int(result.get("unexpected_count", 0)) - len(rows[:MOST_SENTENCES])
        if more > 0:
            yield f"{check.name}: {more:,} more of {amount(len(frame.table), 'row')} fail"
    elif "observed_value" in result:
        yield check.describe({"observed": result["observed_value"]})
    else:
        yield f"{check.name}: could not be evaluated: {_exception(outcome)}"


def _exception(outcome: ExpectationValidationResult) -> str:
    """Return the messages of the exceptions that an expectation raised, '' if none."""
    info = outcome.exception_info or {}
    nested = [value for value in info.values() if isinstance(value, dict)] or [info]
    return "; ".join(str(entry.get("exception_message")) for entry in nested)


def _sentences(check: Check, rows: Iterable[FoundRow]) -> Iterable[str]:
    """Yield one sentence per row. Adjacent key groups of a state with the same failure share one sentence."""
    runs: list[tuple[str, int, int, str]] = []
    for row in rows:
        state, failure = str(row.get("state", "")), check.describe(row)
        group = int(str(row.get("key_group", -1)))
        last = runs[-1] if runs else None
        if last and group >= 0 and (last[0], last[2], last[3]) == (state, group - 1, failure):
            runs[-1] = (state, last[1], group, failure)
        else:
            runs.append((state, group, group, failure))
    for state, first, final, failure in runs:
        about = [f"state {state}"] if state else []
        if first >= 0:
            about.append(f"key group {first}" if first == final else f"key groups {first}-{final}")
        yield f"{', '.join(about)}: {failure}" if about else failure
