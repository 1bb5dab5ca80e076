"""An operator that waits until the events of a run's interval are complete, by ``source.ready`` of the pipeline
file."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import BaseOperator
from airflow.triggers.base import BaseTrigger, TriggerEvent

from statelib.model.moments import epoch_ms, moment_of
from statelib_airflow.airflow_internals import asset_was_updated
from statelib_airflow.failures import failing_fast
from statelib_airflow.hooks import StatelibHook
from statelib_airflow.runtime import runs

if TYPE_CHECKING:
    from airflow.sdk import Context

    from statelib.definition.source.readiness import ReadyRule

log = logging.getLogger(__name__)


class SourceReadyOperator(BaseOperator):
    """An operator that waits, in the triggerer, until the events of the run's data interval are complete. It ends
    at once if the pipeline file has no ``source.ready``, or if the state has the interval already.

    Files are looked at by the triggerer: it needs the paths, or the credentials of the object storage, as the workers
    do. Assets are looked at by the task itself, which Airflow wakes each ``poke_interval`` for it."""

    template_fields: Sequence[str] = ("pipeline",)

    def __init__(self, *, pipeline: str, statelib_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.statelib_conn_id = pipeline, statelib_conn_id

    def execute(self, context: "Context") -> None:
        from statelib.definition.parts.durations import milliseconds

        rule, ready = self._rule(context)
        if rule is not None:
            waited_ms = milliseconds(ready.timeout)
            deadline_ms = epoch_ms(datetime.now(UTC)) + waited_ms
            self._look(rule, milliseconds(ready.poke_interval) / 1000, deadline_ms)

    def looked(self, context: "Context", event: dict[str, Any], rule: str, poke_s: float, deadline_ms: int) -> None:  # noqa: ARG002 - Airflow's signature
        """Check again after the trigger has ended, because files may have changed, and because it checks no asset."""
        from statelib.definition.source.readiness import ReadyRule

        if event.get("error"):
            raise AirflowFailException(event["error"])
        self._look(ReadyRule.from_json(rule), poke_s, deadline_ms)

    def _rule(self, context: "Context") -> tuple["ReadyRule | None", Any]:
        from statelib.definition.source.readiness import ready_rule
        from statelib.model.ids import PipelineName

        hook = StatelibHook(self.statelib_conn_id)
        pipeline, interval = hook.pipeline(self.pipeline), runs.data_interval(context)
        with failing_fast():
            deployment = hook.deployment()
            if pipeline.source.ready is None:
                return None, None
            if deployment.catalog().applied(PipelineName(pipeline.name), interval) is not None:
                log.info("the state holds this interval already: nothing to wait for")
                return None, None
            return ready_rule(pipeline, deployment.data, interval), pipeline.source.ready

    def _look(self, rule: "ReadyRule", poke_s: float, deadline_ms: int) -> None:
        """Return if the events are complete, else defer the task until something may have changed."""
        from statelib.flows.checkpoint.readiness import missing, summary

        with failing_fast():
            gaps = missing(rule)
        if rule.asset is not None and not asset_was_updated(rule.asset, _moment(rule.end_ms)):
            gaps.append(f"asset {rule.asset} was not updated since {_moment(rule.end_ms)}")
        if not gaps:
            log.info("the events of the interval are complete")
            return
        text = summary(gaps)
        if epoch_ms(datetime.now(UTC)) >= deadline_ms:
            raise AirflowFailException(f"source-not-ready: the events of the interval are not complete: {text}")
        log.info("waiting: %s", text)
        trigger = SourceReadyTrigger(rule.to_json(), poke_s, deadline_ms)
        left = timedelta(milliseconds=deadline_ms - epoch_ms(datetime.now(UTC))) + _GRACE
        again = {"rule": rule.to_json(), "poke_s": poke_s, "deadline_ms": deadline_ms}
        self.defer(trigger=trigger, method_name="looked", kwargs=again, timeout=left)


_GRACE = timedelta(minutes=10)
"""The time that a busy or restarted triggerer gets beyond the deadline. The trigger itself ends at the deadline."""


class SourceReadyTrigger(BaseTrigger):
    """The trigger that waits. ``rule``: the rule of the pipeline file as JSON, with paths and without credentials."""

    def __init__(self, rule: str, poke_s: float, deadline_ms: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rule, self.poke_s, self.deadline_ms = rule, poke_s, deadline_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("rule", "poke_s", "deadline_ms")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check every ``poke_s`` seconds, until all files exist, the deadline has passed, or the storage refuses
        access."""
        while True:
            await asyncio.sleep(self.poke_s)
            over = epoch_ms(datetime.now(UTC)) >= self.deadline_ms
            answer = await asyncio.to_thread(_answer, self.rule)
            if answer is not None or over:
                yield TriggerEvent(answer or {})  # type: ignore[no-untyped-call]
                return


def _answer(rule: str) -> dict[str, str] | None:
    """Return the event that ends the wait: ``{}`` if all files exist, the error if the storage refuses access. Return
    None to wait longer, also while the storage is in trouble."""
    from statelib.definition.source.readiness import ReadyRule
    from statelib.errors import RetryableError, StatelibError
    from statelib.flows.checkpoint.readiness import missing, summary

    try:
        gaps = missing(ReadyRule.from_json(rule))
    except RetryableError as error:
        log.warning("looking again: %s", error)
        return None
    except StatelibError as error:
        return {"error": f"{error.kind}: {error}"}
    if gaps:
        log.info("waiting: %s", summary(gaps))
        return None
    return {}


def _moment(epoch_ms: int) -> str:
    return moment_of(epoch_ms).isoformat()
