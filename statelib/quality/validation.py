"""The one place that speaks to Great Expectations: rules in, outcomes and Data Docs pages out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import great_expectations as gx
from great_expectations import expectations as gxe
from great_expectations.core import ExpectationSuite, ExpectationValidationResult
from great_expectations.data_context.types.base import DataContextConfig, InMemoryStoreBackendDefaults

from statelib.quality.facts import Outcome
from statelib.quality.frames import AtMost, Check, Equal, FoundRow, Frame, OneOf

MOST_SENTENCES = 10
"""Failures of one expectation that are spelled out; the rest are counted."""


@dataclass(frozen=True)
class Judged:
    """An outcome with its failures in words."""

    outcome: Outcome
    failures: tuple[str, ...]


def validate(frames: Sequence[Frame], docs_directory: str) -> list[Judged]:
    """Judge every frame, in order, and build the Data Docs site in ``docs_directory`` (a path)."""
    context = gx.get_context(mode="ephemeral", project_config=_config(docs_directory))
    source = context.data_sources.add_pandas("checkpoint")
    judged = []
    for frame in frames:
        batch = source.add_dataframe_asset(frame.name).add_batch_definition_whole_dataframe(frame.name)
        suite = ExpectationSuite(name=frame.name, expectations=[_expectation(check) for check in frame.checks])
        validation = gx.ValidationDefinition(name=frame.name, data=batch, suite=context.suites.add(suite))
        result = context.validation_definitions.add(validation).run(
            batch_parameters={"dataframe": frame.table},
            result_format={
                "result_format": "COMPLETE",
                "unexpected_index_column_names": list(frame.keys),
                "return_unexpected_index_query": False,
            },
        )
        # Great Expectations returns results in an order of its own.
        by_name = {found.expectation_config.description: found for found in result.results}
        judged += [_judge(frame, check, by_name[check.name]) for check in frame.checks]
    context.build_data_docs()
    return judged


def _config(docs_directory: str) -> DataContextConfig:
    site = {
        "class_name": "SiteBuilder",
        "show_how_to_buttons": False,
        "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": docs_directory},
        "site_index_builder": {"class_name": "DefaultSiteIndexBuilder", "show_cta_footer": False},
    }
    return DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
        data_docs_sites={"checkpoint": site},
        analytics_enabled=False,
        progress_bars={"globally": False},
    )


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


def _judge(frame: Frame, check: Check, found: ExpectationValidationResult) -> Judged:
    result = found.result
    failed = int(result.get("unexpected_count", 0))
    outcome = Outcome(frame.name, check.name, bool(found.success), int(result.get("element_count", 0)), failed)
    if found.success:
        return Judged(outcome, ())
    if "unexpected_index_list" not in result:
        return Judged(outcome, (f"{check.name}: could not be evaluated: {_exception(found)}",))
    sentences = list(_sentences(check, result["unexpected_index_list"]))
    if len(sentences) > MOST_SENTENCES:
        more = f"{check.name}: {len(sentences) - MOST_SENTENCES} more failures are in the report"
        sentences = [*sentences[:MOST_SENTENCES], more]
    return Judged(outcome, tuple(sentences))


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
