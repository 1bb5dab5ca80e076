"""The data interval of a run: by its params, by its timetable, or by the updates of assets that started it."""

import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from statelib.model.moments import epoch_ms, moment_of
from statelib_airflow.failures import failing_fast
from statelib_airflow.hooks import StatelibHook

if TYPE_CHECKING:
    from datetime import tzinfo

    from airflow.sdk import BaseOperator, Context

    from statelib.definition.pipeline import Pipeline
    from statelib.flows.checkpoint.asset_intervals import AssetUpdate
    from statelib.model.checkpoint import DataInterval

log = logging.getLogger(__name__)


def interval_of_run(hook: StatelibHook, pipeline: "Pipeline", context: "Context") -> "DataInterval | None":
    """Return the data interval of the run, by its params, its timetable or the updates of assets that started it. None
    if the state has everything already that the updates name.

    Raise AirflowSkipException if all intervals that the updates name are outside of the schedule."""
    if context["dag_run"].dag_id in (pipeline.checkpoint_dag, f"{pipeline.name}.checkpoint"):
        with failing_fast():
            requested = _requested_interval(context, pipeline.zone)
        if requested is not None:
            return requested
    if not context["dag_run"].consumed_asset_events:
        return _data_interval(context)
    from statelib.flows.checkpoint.asset_intervals import interval_of_updates

    with failing_fast():
        updates = _asset_updates(context, pipeline.zone)
        _check_in_schedule(pipeline, updates)
        return interval_of_updates(hook.deployment(), pipeline, updates)


def is_over(pipeline: "Pipeline", interval: "DataInterval", context: "Context") -> bool:
    """Return whether the run's interval is over. That of a timetable is, by Airflow's clock, which may be ahead."""
    from statelib.flows.checkpoint import next_intervals

    end = context["dag_run"].data_interval_end
    by_timetable = end is not None and epoch_ms(end) == interval.end_ms
    return by_timetable or next_intervals.is_over(pipeline, [interval])


def end_to_wait_for(hook: StatelibHook, pipelines: Sequence[str], context: "Context") -> int | None:
    """Return when the run's interval is over for all pipelines, given by names or paths of files, in epoch
    milliseconds; None if it is. What is wrong with a pipeline is left to the step that begins its checkpoint."""
    ends = []
    for name in pipelines:
        with suppress(Exception):
            pipeline = hook.pipeline(name)
            interval = interval_of_run(hook, pipeline, context)
            if interval is not None and not is_over(pipeline, interval, context):
                log.info("waiting: %s", not_over(interval))
                ends.append(interval.end_ms)
    return max(ends, default=None)


def not_over(interval: "DataInterval") -> str:
    """Return why the run cannot begin before the interval is over."""
    from statelib.definition.source.parts import range_text

    return (
        f"the interval {range_text(interval)} is not over: its later events would never be applied. If its events are "
        "complete, `statelib run --assume-ready` applies it now"
    )


def defer_until(task: "BaseOperator", end_ms: int) -> None:
    """Defer a task until the interval of its run is over, which needs no worker. Then ``when_over`` is called."""
    from airflow.providers.standard.triggers.temporal import DateTimeTrigger

    task.defer(trigger=DateTimeTrigger(moment=moment_of(end_ms)), method_name="when_over")


def _check_in_schedule(pipeline: "Pipeline", updates: "Sequence[AssetUpdate]") -> None:
    """Log the intervals that are not applied because they are outside of the schedule. Raise AirflowSkipException if
    there are no others."""
    from statelib.definition.source.parts import range_text
    from statelib.flows.checkpoint.asset_intervals import in_schedule

    named = [update.interval for update in updates if update.interval is not None]
    outside = [interval for interval in named if not in_schedule(pipeline, interval)]
    for interval in outside:
        log.info("%s is not applied: it is outside of schedule.start and schedule.end", range_text(interval))
    if outside and len(outside) == len(updates):
        raise AirflowSkipException("the asset names no interval between schedule.start and schedule.end: nothing to do")


def _data_interval(context: "Context") -> "DataInterval":
    """Return the run's data interval. Raise AirflowFailException if the run has none, or an empty one, as the trigger
    timetables of Airflow give it."""
    from statelib.model.checkpoint import DataInterval

    run = context["dag_run"]
    start, end = run.data_interval_start, run.data_interval_end
    if start is None or end is None or start == end:
        raise AirflowFailException(
            f"run {run.run_id} has no data interval, hence no events to apply: {_way_to_an_interval(context)}"
        )
    return DataInterval(epoch_ms(start), epoch_ms(end))


def _way_to_an_interval(context: "Context") -> str:
    dag_id = context["dag_run"].dag_id
    if {"start", "end"} <= set(context.get("params") or {}):
        return "enter start and end of the interval when you trigger the DAG, or use statelib run --start ... --end ..."
    return (
        "trigger it with a logical date, or use "
        f"`airflow backfill create --dag-id {dag_id} --from-date ... --to-date ...`; a DAG of your own needs a "
        'timetable with data intervals, such as schedule=CronDataIntervalTimetable("@daily", timezone="UTC"), because '
        '"@daily" alone has none in Airflow 3'
    )


def _requested_interval(context: "Context", zone: "tzinfo") -> "DataInterval | None":
    """Return the interval of the run's params ``start`` and ``end``, None if both are empty. Times without an offset
    are in ``zone``. Raises InvalidRequestError (``bad-time``, ``bad-interval``)."""
    from statelib.definition.source.intervals import moment
    from statelib.errors import InvalidRequestError
    from statelib.model.checkpoint import DataInterval

    params = context.get("params") or {}
    start, end = params.get("start"), params.get("end")
    if not start and not end:
        return None
    bounds = DataInterval(moment(start, zone), moment(end, zone)) if start and end else None
    if bounds is None or bounds.end_ms <= bounds.start_ms:
        raise InvalidRequestError(
            f"params start and end of the run: expected both, and start before end; found {start} and {end}",
            kind="bad-interval",
            hint="trigger the DAG again, such as with start 2026-01-31 and end 2026-02-01",
        )
    return bounds


def _asset_updates(context: "Context", zone: "tzinfo") -> list["AssetUpdate"]:
    """Return the updates of assets that started the run. Times without an offset are in ``zone``. Raises as
    :func:`~statelib.definition.source.asset_events.interval_of_event`."""
    from statelib.definition.source.asset_events import interval_of_event
    from statelib.flows.checkpoint.asset_intervals import AssetUpdate

    return [
        AssetUpdate(
            epoch_ms(event.timestamp), interval_of_event(event.extra, getattr(event, "partition_key", None), zone)
        )
        for event in context["dag_run"].consumed_asset_events
    ]
