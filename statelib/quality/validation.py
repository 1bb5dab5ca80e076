"""The one place that speaks to Great Expectations: rules in, results and Data Docs pages out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from statelib.model.amounts import amount
from statelib.model.quality import QualityResult
from statelib.quality.deferred import deferred, without
from statelib.quality.masking import masked
from statelib.quality.rules import AtMost, Check, Equal, FoundRow, Frame, Library, OneOf, Unanswerable

# Both serve a few expectations of distributions, and take a quarter of the time that importing all takes.
# Nor is anything validated by Spark.
with deferred("altair", "scipy.stats"), without("pyspark"):
    import great_expectations as gx
    from great_expectations import expectations as gxe
    from great_expectations.core import ExpectationSuite, ExpectationValidationResult
    from great_expectations.data_context import EphemeralDataContext
    from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults
    from great_expectations.datasource.fluent import PandasDatasource

_SITE = "checkpoint"
MOST_SENTENCES = 10
"""Failures of one expectation that are spelled out; the rest are counted."""


@dataclass(frozen=True, eq=False)
class Validation:
    """The results of all checks, and what the pages of a report are made from."""

    results: tuple[QualityResult, ...]
    _context: EphemeralDataContext

    def write_pages(self, directory: str) -> None:
        """Build the Data Docs site in ``directory`` (a path)."""
        _mask_results(self._context)
        self._context.add_data_docs_site(_SITE, _site(directory))
        self._context.build_data_docs()


def validate(frames: Sequence[Frame]) -> Validation:
    """Judge every frame, in order; nothing is written."""
    context = gx.get_context(mode="ephemeral", project_config=_config())
    source = context.data_sources.add_pandas("checkpoint")
    judged: list[QualityResult] = []
    for frame in frames:
        found = _validate(context, source, frame)
        judged += [_judge(frame, check, found.get(check.name)) for check in frame.checks]
    return Validation(tuple(judged), context)


def _mask_results(context: EphemeralDataContext) -> None:
    """Replace what was stored to be shown: templates write it into pages as it is."""
    store = context.validation_results_store
    for key in store.list_keys():
        store.update(key, store.deserialize(masked(store.get(key).to_json_dict())))


def _validate(
    context: EphemeralDataContext, source: PandasDatasource, frame: Frame
) -> Mapping[str | None, ExpectationValidationResult]:
    """By the name of the check: Great Expectations returns results in an order of its own."""
    answerable = [check for check in frame.checks if not isinstance(check.rule, Unanswerable)]
    if not answerable:
        return {}
    batch = source.add_dataframe_asset(frame.name).add_batch_definition_whole_dataframe(frame.name)
    suite = ExpectationSuite(name=frame.name, expectations=[_expectation(check) for check in answerable])
    validation = gx.ValidationDefinition(name=frame.name, data=batch, suite=context.suites.add(suite))
    users = any(isinstance(check.rule, Library) for check in answerable)
    result = context.validation_definitions.add(validation).run(
        batch_parameters={"dataframe": frame.table},
        result_format={
            # Of the user's rows, which may be many, only some of those that fail are kept.
            "result_format": "SUMMARY" if users else "COMPLETE",
            "partial_unexpected_count": MOST_SENTENCES,
            "unexpected_index_column_names": list(frame.keys),
            "return_unexpected_index_query": False,
        },
    )
    return {found.expectation_config.description: found for found in result.results if found.expectation_config}


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
        # The pages of the suites repeat what those of the results say; nothing is profiled.
        "site_section_builders": {"expectations": "none", "profiling": "none"},
    }


def _expectation(check: Check) -> gxe.Expectation:
    match check.rule:
        case Equal(expected, found):
            return gxe.ExpectColumnPairValuesToBeEqual(
                column_A=expected, column_B=found, ignore_row_if="either_value_is_missing", description=check.name
            )
        case AtMost(column, limit):
            return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
                column_A=limit, column_B=column, or_equal=True, ignore_row_if="neither", description=check.name
            )
        case OneOf(column, values):
            return gxe.ExpectColumnValuesToBeInSet(column=column, value_set=list(values), description=check.name)
        case Library(name, parameters):
            return getattr(gxe, name)(**parameters, description=check.name)
        case Unanswerable():
            raise AssertionError("nobody can judge it")


def _judge(frame: Frame, check: Check, found: ExpectationValidationResult | None) -> QualityResult:
    rows = len(frame.table)
    if isinstance(check.rule, Unanswerable):
        sentences = (check.rule.reason, *frame.notes)
        return QualityResult(frame.name, check.name, check.severity, False, 0, 0, sentences)
    assert found is not None, "every check that can be judged was"
    result, passed = found.result, bool(found.success)
    checked = int(result.get("element_count", rows))
    failed = int(result.get("unexpected_count", 0 if passed else 1))
    sentences = frame.notes if passed else (*_told(frame, check, found), *frame.notes)
    return QualityResult(frame.name, check.name, check.severity, passed, checked, failed, tuple(sentences))


def _told(frame: Frame, check: Check, found: ExpectationValidationResult) -> Iterable[str]:
    """What is wrong, in sentences, not too many of them."""
    result = found.result
    problem = _exception(found)
    if isinstance(check.rule, Library):
        return _told_of_library(frame, check, found)
    if "unexpected_index_list" not in result:
        return (f"{check.name}: could not be evaluated: {problem}",)
    sentences = list(_sentences(check, result["unexpected_index_list"]))
    if len(sentences) > MOST_SENTENCES:
        more = f"{check.name}: {amount(len(sentences) - MOST_SENTENCES, 'more failure')} in the report"
        return [*sentences[:MOST_SENTENCES], more]
    return sentences


def _told_of_library(frame: Frame, check: Check, found: ExpectationValidationResult) -> Iterable[str]:
    """Rows that fail, by their keys; or what was observed of a column as a whole."""
    result = found.result
    rows = result.get("partial_unexpected_index_list") or []
    if rows:
        yield from (check.say(row) for row in rows[:MOST_SENTENCES])
        more = int(result.get("unexpected_count", 0)) - len(rows[:MOST_SENTENCES])
        if more > 0:
            yield f"{check.name}: {more:,} more of {amount(len(frame.table), 'row')} fail"
    elif "observed_value" in result:
        yield check.say({"observed": result["observed_value"]})
    else:
        yield f"{check.name}: could not be evaluated: {_exception(found)}"


def _exception(found: ExpectationValidationResult) -> str:
    info = found.exception_info or {}
    nested = [value for value in info.values() if isinstance(value, dict)] or [info]
    return "; ".join(str(entry.get("exception_message")) for entry in nested)


def _sentences(check: Check, rows: Iterable[FoundRow]) -> Iterable[str]:
    """One sentence a row; neighbouring key groups of a state with the same failure share one."""
    runs: list[tuple[str, int, int, str]] = []
    for row in rows:
        state, said = str(row.get("state", "")), check.say(row)
        group = int(str(row.get("key_group", -1)))
        last = runs[-1] if runs else None
        if last and group >= 0 and (last[0], last[2], last[3]) == (state, group - 1, said):
            runs[-1] = (state, last[1], group, said)
        else:
            runs.append((state, group, group, said))
    for state, first, final, said in runs:
        about = [f"state {state}"] if state else []
        if first >= 0:
            about.append(f"key group {first}" if first == final else f"key groups {first}-{final}")
        yield f"{', '.join(about)}: {said}" if about else said
