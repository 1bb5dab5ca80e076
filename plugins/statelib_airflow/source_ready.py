"""An operator that waits until the events of a run's interval are complete, by ``ready`` of each source of the pipeline
file."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from statelib.model.moments import epoch_ms
from statelib_airflow.failures import failing_fast
from statelib_airflow.hooks import StatelibHook
from statelib_airflow.runtime import intervals, steps

if TYPE_CHECKING:
    from airflow.sdk import Context

    from statelib.definition.pipeline import Pipeline
    from statelib.definition.source.readiness import ReadyRule
    from statelib.model.checkpoint import DataInterval

log = logging.getLogger(__name__)


class SourceReadyOperator(BaseOperator):
    """An operator that waits, in the triggerer, until the events of the run's data interval are complete. It ends
    at once if no source of the pipeline file has ``ready``, or if the state has the interval already. Each source has
    its own conditions and timeout, which counts from the end of the interval; the operator waits for all of them.

    Files are looked at by the triggerer: it needs the paths, or the credentials of the object storage, as the workers
    do. Assets are looked at by the task itself, which Airflow wakes each ``poke_interval`` for it."""

    template_fields: Sequence[str] = ("pipeline",)

    def __init__(self, *, pipeline: str, statelib_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.statelib_conn_id = pipeline, statelib_conn_id

    def execute(self, context: "Context") -> None:
        hook = StatelibHook(self.statelib_conn_id)
        pipeline = hook.pipeline(self.pipeline)
        interval = intervals.interval_of_run(hook, pipeline, context)
        rules = [] if interval is None else _rules(hook, pipeline, interval)
        if interval is not None and rules and not intervals.is_over(pipeline, interval, context):
            log.info("waiting: %s", intervals.not_over(interval))
            intervals.defer_until(self, interval.end_ms)
        self._look(rules, epoch_ms(datetime.now(UTC)))

    def when_over(self, context: "Context", event: Any) -> None:  # noqa: ARG002 - Airflow's signature
        """Look at the sources, because the interval is over."""
        self.execute(context)

    def looked(self, context: "Context", event: dict[str, Any], rules: list[str], began_ms: int) -> None:  # noqa: ARG002 - Airflow's signature
        """Check again after the trigger has ended, because files may have changed, and because it checks no asset."""
        from statelib.definition.source.readiness import ReadyRule

        if event.get("error"):
            raise AirflowFailException(event["error"])
        self._look([ReadyRule.from_json(rule) for rule in rules], began_ms)

    def _look(self, rules: list["ReadyRule"], began_ms: int) -> None:
        """Return if the events are complete, else defer the task until something may have changed. ``began_ms``: the
        beginning of the wait, from which the timeout of each source counts."""
        from statelib.flows.checkpoint.readiness import summary

        with failing_fast():
            waiting = [(rule, gaps) for rule in rules if (gaps := _gaps(rule))]
        if not waiting:
            log.info("the events of the interval are complete")
            return
        now_ms = epoch_ms(datetime.now(UTC))
        late = [gap for rule, gaps in waiting if now_ms >= began_ms + rule.timeout_ms for gap in gaps]
        if late:
            message = f"source-not-ready: the events of the interval are not complete: {summary(late)}"
            raise AirflowFailException(message)
        log.info("waiting: %s", summary([gap for _, gaps in waiting for gap in gaps]))
        texts = [rule.to_json() for rule in rules]
        poke_s = min(rule.poke_ms for rule, _ in waiting) / 1000
        deadline_ms = began_ms + min(rule.timeout_ms for rule, _ in waiting)
        trigger = SourceReadyTrigger(texts, poke_s, deadline_ms)
        left = timedelta(milliseconds=deadline_ms - now_ms) + _GRACE
        again = {"rules": texts, "began_ms": began_ms}
        self.defer(trigger=trigger, method_name="looked", kwargs=again, timeout=left)


def _rules(hook: StatelibHook, pipeline: "Pipeline", interval: "DataInterval") -> list["ReadyRule"]:
    """Return the rules of the sources; none if the state has the interval."""
    from statelib.definition.source.readiness import ready_rules

    with failing_fast():
        deployment = hook.deployment()
        rules = list(ready_rules(pipeline, deployment.data, interval))
        if rules and deployment.catalog().applied(pipeline.name, interval) is not None:
            log.info("the state holds this interval already: nothing to wait for")
            return []
        return rules


def _gaps(rule: "ReadyRule") -> list[str]:
    """Return one clause per condition of a source that does not hold, its asset included."""
    from statelib.flows.checkpoint.readiness import missing, named, not_updated

    gaps = missing(rule)
    if rule.asset is not None and not steps.was_updated(rule.asset, rule.end_ms):
        gaps.append(named(rule, not_updated(rule.asset, rule.end_ms)))
    return gaps


_GRACE = timedelta(minutes=10)
"""The time that a busy or restarted triggerer gets beyond the deadline. The trigger itself ends at the deadline."""


class SourceReadyTrigger(BaseTrigger):
    """The trigger that waits. ``rules``: the rule of each source as JSON, with paths and without credentials."""

    def __init__(self, rules: list[str], poke_s: float, deadline_ms: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rules, self.poke_s, self.deadline_ms = rules, poke_s, deadline_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("rules", "poke_s", "deadline_ms")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check every ``poke_s`` seconds, until all files exist, the deadline has passed, or the storage refuses
        access."""
        while True:
            await asyncio.sleep(self.poke_s)
            over = epoch_ms(datetime.now(UTC)) >= self.deadline_ms
            answer = await asyncio.to_thread(_answer, self.rules)
            if answer is not None or over:
                yield TriggerEvent(answer or {})  # type: ignore[no-untyped-call]
                return


def _answer(rules: list[str]) -> dict[str, str] | None:
    """Return the event that ends the wait: ``{}`` if all files exist, the error if the storage refuses access. Return
    None to wait longer, also while the storage is in trouble."""
    from statelib.definition.source.readiness import ReadyRule
    from statelib.errors import RetryableError, StatelibError
    from statelib.flows.checkpoint.readiness import missing, summary

    try:
        gaps = [gap for rule in rules for gap in missing(ReadyRule.from_json(rule))]
    except RetryableError as error:
        log.warning("looking again: %s", error)
        return None
    except StatelibError as error:
        return {"error": f"{error.kind}: {error}"}
    if gaps:
        log.info("waiting: %s", summary(gaps))
        return None
    return {}
