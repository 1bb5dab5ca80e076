"""A sensor that waits until a pipeline's state has all events up to a moment, or until there is a new checkpoint."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.configuration import conf
from airflow.sdk import BaseSensorOperator, PokeReturnValue
from airflow.triggers.base import BaseTrigger, TriggerEvent

from statelib.model.moments import epoch_ms
from statelib_airflow.hooks import StatelibHook, deployment_of

if TYPE_CHECKING:
    from airflow.sdk import Context

Facts = dict[str, int | None]


def find_checkpoint(
    settings: Mapping[str, str], pipeline: str, until_ms: int | None, since_ms: int | None
) -> Facts | None:
    """Return the id, bytes and keys of the pipeline's newest checkpoint; None if its state does not have every event
    before ``until_ms`` yet, or if it was not completed after ``since_ms``."""
    from statelib.coordinator.termination import last_interval
    from statelib.model.ids import PipelineName
    from statelib_airflow.failures import failing_fast
    from statelib_airflow.runtime.steps import contents_of

    with failing_fast():
        catalog, name = deployment_of(settings).catalog(), PipelineName(pipeline)
        head = catalog.head(name).head
        if head is None:
            return None
        lineage = catalog.lineage(name, head)
    last, newest = last_interval(lineage, head), lineage[0]
    if until_ms is not None and (last is None or last.end_ms < until_ms):
        return None
    if since_ms is not None and (newest.completed_at_ms or 0) <= since_ms:
        return None
    return contents_of(newest)


class CheckpointSensor(BaseSensorOperator):
    """A sensor that waits until a pipeline's state, as it is registered, has every event before ``until`` (by default
    the end of the run's own data interval; None: does not matter), and, if ``newer_than`` is given, until its
    checkpoint was completed after that moment. Both are ISO 8601, and templates. Returns ``id``, ``bytes``, ``keys``
    (None where they are not known) and ``entries``.

    A state that was restored to an earlier interval makes it wait again. ``deferrable`` (by default as in Airflow's
    configuration): the triggerer waits, and no worker does; else ``mode="reschedule"`` is the thrifty way."""

    template_fields: Sequence[str] = ("pipeline", "until", "newer_than")

    def __init__(
        self,
        *,
        pipeline: str,
        until: str | None = "{{ data_interval_end }}",
        newer_than: str | None = None,
        deferrable: bool | None = None,
        statelib_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline, self.until, self.newer_than = pipeline, until, newer_than
        self.statelib_conn_id = statelib_conn_id
        default = conf.getboolean("operators", "default_deferrable", fallback=False)
        self.deferrable = default if deferrable is None else deferrable

    def poke(self, context: "Context") -> PokeReturnValue:  # noqa: ARG002 - Airflow's signature
        settings = StatelibHook(self.statelib_conn_id).settings()
        facts = find_checkpoint(settings, self.pipeline, _moment(self.until), _moment(self.newer_than))
        return PokeReturnValue(facts is not None, facts)

    def execute(self, context: "Context") -> Any:
        if not self.deferrable:
            return super().execute(context)
        result = self.poke(context)
        if result:
            return result.xcom_value
        trigger = CheckpointTrigger(
            self.pipeline, _moment(self.until), _moment(self.newer_than), self.statelib_conn_id, self.poke_interval
        )
        self.defer(trigger=trigger, method_name="execute_complete", timeout=timedelta(seconds=self.timeout))
        return None

    def execute_complete(self, context: "Context", event: Facts) -> Facts:  # noqa: ARG002 - Airflow's signature
        return event


class CheckpointTrigger(BaseTrigger):
    """The trigger that waits for the sensor. Airflow stores the name of the connection, never its contents."""

    def __init__(
        self,
        pipeline: str,
        until_ms: int | None,
        since_ms: int | None,
        statelib_conn_id: str | None = None,
        poke_interval: float = 60.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.pipeline, self.until_ms, self.since_ms = pipeline, until_ms, since_ms
        self.statelib_conn_id, self.poke_interval = statelib_conn_id, poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("pipeline", "until_ms", "since_ms", "statelib_conn_id", "poke_interval")
        return f"{type(self).__module__}.{type(self).__qualname__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        settings = await StatelibHook(self.statelib_conn_id).asettings()
        while True:
            facts = await asyncio.to_thread(self._find, settings)
            if facts is not None:
                yield TriggerEvent(facts)  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(self.poke_interval)

    def _find(self, settings: Mapping[str, str]) -> Facts | None:
        """Return the result of :func:`find_checkpoint`; None also while the catalog is in trouble, to look again."""
        from statelib.errors import RetryableError

        try:
            return find_checkpoint(settings, self.pipeline, self.until_ms, self.since_ms)
        except RetryableError as error:
            self.log.warning("looking again: %s", error)
            return None


def _moment(text: str | None) -> int | None:
    if not text or text == "None":
        return None
    moment = datetime.fromisoformat(text)
    return epoch_ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
