"""Wait until the events of a run's interval have landed, as ``source.ready`` of the pipeline file says it."""

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
    """Waits, in the triggerer, until the events of the run's data interval are complete. It is done at once where the
    pipeline file has no ``source.ready``, and where the state holds the interval already.

    Files are looked at by the triggerer: it needs the paths, or the credentials of the object storage, as the workers
    do. Assets are looked at by the task itself, which Airflow wakes each ``poke_interval`` for it."""

    template_fields: Sequence[str] = ("pipeline",)

    def __init__(self, *, pipeline: str, statelib_conn_id: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.statelib_conn_id = pipeline, statelib_conn_id

    def execute(self, context: "Context") -> None:
        from statelib.definition.durations import milliseconds

        rule, ready = self._rule(context)
        if rule is not None:
            waited_ms = milliseconds(ready.timeout)
            deadline_ms = epoch_ms(datetime.now(UTC)) + waited_ms
            self._look(rule, milliseconds(ready.poke_interval) / 1000, deadline_ms)

    def looked(self, context: "Context", event: dict[str, Any], rule: str, poke_s: float, deadline_ms: int) -> None:  # noqa: ARG002 - Airflow's signature
        """Go on after the trigger has looked: what it found may have changed, and an asset is still to be looked at."""
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
            here = hook.deployment()
            if pipeline.source.ready is None:
                return None, None
            if here.catalog().applied(PipelineName(pipeline.name), interval) is not None:
                log.info("the state holds this interval already: nothing to wait for")
                return None, None
            return ready_rule(pipeline, here.data, interval), pipeline.source.ready

    def _look(self, rule: "ReadyRule", poke_s: float, deadline_ms: int) -> None:
        """Return if everything is there, else leave the worker until something may have changed."""
        from statelib.flows.checkpoint.readiness import missing, summary

        with failing_fast():
            found = missing(rule)
        if rule.asset is not None and not asset_was_updated(rule.asset, _moment(rule.end_ms)):
            found.append(f"asset {rule.asset} was not updated since {_moment(rule.end_ms)}")
        if not found:
            log.info("the events of the interval are complete")
            return
        text = summary(found)
        if epoch_ms(datetime.now(UTC)) >= deadline_ms:
            raise AirflowFailException(f"source-not-ready: the events of the interval are not complete: {text}")
        log.info("waiting: %s", text)
        trigger = SourceReadyTrigger(rule.to_json(), poke_s, deadline_ms)
        left = timedelta(milliseconds=deadline_ms - epoch_ms(datetime.now(UTC))) + _GRACE
        again = {"rule": rule.to_json(), "poke_s": poke_s, "deadline_ms": deadline_ms}
        self.defer(trigger=trigger, method_name="looked", kwargs=again, timeout=left)


_GRACE = timedelta(minutes=10)
"""What a triggerer that is busy or was started again may take longer; the trigger itself ends at the deadline."""


class SourceReadyTrigger(BaseTrigger):
    """The wait itself. ``rule``: what is waited for, as JSON; it names paths, and nothing that opens them."""

    def __init__(self, rule: str, poke_s: float, deadline_ms: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rule, self.poke_s, self.deadline_ms = rule, poke_s, deadline_ms

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("rule", "poke_s", "deadline_ms")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look each ``poke_s``, until all files are there, the time is over, or looking itself is refused."""
        while True:
            await asyncio.sleep(self.poke_s)
            over = epoch_ms(datetime.now(UTC)) >= self.deadline_ms
            answer = await asyncio.to_thread(_answer, self.rule)
            if answer is not None or over:
                yield TriggerEvent(answer or {})  # type: ignore[no-untyped-call]
                return


def _answer(rule: str) -> dict[str, str] | None:
    """What the task is to be woken for: ``{}`` where all files are there, the error where looking is refused; None
    where it is to sleep on, also while the storage is in trouble."""
    from statelib.definition.source.readiness import ReadyRule
    from statelib.errors import RetryableError, StatelibError
    from statelib.flows.checkpoint.readiness import missing, summary

    try:
        found = missing(ReadyRule.from_json(rule))
    except RetryableError as error:
        log.warning("looking again: %s", error)
        return None
    except StatelibError as error:
        return {"error": f"{error.kind}: {error}"}
    if found:
        log.info("waiting: %s", summary(found))
        return None
    return {}


def _moment(epoch_ms: int) -> str:
    return moment_of(epoch_ms).isoformat()
