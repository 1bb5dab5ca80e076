"""The only module that uses Great Expectations: it evaluates the expectations of users and builds their pages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from statelib.model.amounts import amount
from statelib.model.quality import QualityResult
from statelib.quality.deferred import deferred, without
from statelib.quality.evaluation import MOST_SENTENCES, unanswered
from statelib.quality.report.masking import masked
from statelib.quality.rules import Check, Frame, Library, Unanswerable

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
    result = context.validation_definitions.add(validation).run(
        batch_parameters={"dataframe": frame.table},
        result_format={
            # The rows of a state may be many, so only some of the failing rows are returned.
            "result_format": "SUMMARY",
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
    rule = check.rule
    assert isinstance(rule, Library), "the gate evaluates its own rules itself"
    return getattr(gxe, rule.name)(**rule.parameters, description=check.name)


def _result_of(frame: Frame, check: Check, outcome: ExpectationValidationResult | None) -> QualityResult:
    """Return the result of one check. ``outcome``: the result of the library, None for an unanswerable check."""
    rows = len(frame.table)
    if isinstance(check.rule, Unanswerable):
        return unanswered(frame, check, check.rule)
    assert outcome is not None, "every answerable check was evaluated"
    result, passed = outcome.result, bool(outcome.success)
    checked = int(result.get("element_count", rows))
    failed = int(result.get("unexpected_count", 0 if passed else 1))
    sentences = frame.notes if passed else (*_library_sentences(frame, check, outcome), *frame.notes)
    return QualityResult(frame.name, check.name, check.severity, passed, checked, failed, tuple(sentences))


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
