"""Alerts for a run of a pipeline that fails or is late: the message, and the notifier that sends it."""

import asyncio
import importlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from statelib.visible import visible

if TYPE_CHECKING:
    from airflow.sdk import Context

SPARK_LINE = re.compile(r"^statelib: (.+)$", re.MULTILINE)
"""The last line of a failed Spark job of statelib. Airflow's exception quotes the end of the output."""


@dataclass(frozen=True)
class Alert:
    """The parts of an alert; ``str`` of it is the whole message.

    The templates of a notifier have it as ``statelib``: ``{{ statelib }}``, ``{{ statelib.title }}``,
    ``{{ statelib.hint }}`` and so on. A template of HTML takes ``{{ statelib.html }}``, because the reason may quote
    events."""

    pipeline: str
    checkpoint_id: int | None
    what: str
    run: str
    reason: str
    hint: str = ""
    log: str = ""

    @property
    def title(self) -> str:
        checkpoint = "" if self.checkpoint_id is None else f", checkpoint {self.checkpoint_id}"
        return f"statelib: {self.pipeline}{checkpoint}: {self.what}"

    @property
    def html(self) -> str:
        """The whole message for an HTML page or mail, with all markup escaped."""
        return escape(str(self))

    def __str__(self) -> str:
        lines = [self.title, f"run: {self.run}", f"reason: {self.reason}"]
        more = {"hint": self.hint, "log": self.log}
        return visible("\n".join(lines + [f"{name}: {text}" for name, text in more.items() if text]), lines=True)


class StatelibNotifier(BaseNotifier):
    """A notifier that sends an alert about a failed task or a missed deadline through any other notifier of Airflow.

    ``notifier``: dotted path of the other notifier's class; ``arguments``: its arguments, whose templates may use
    ``statelib`` (an :class:`Alert`). The message always goes to the log too. Use it as ``on_failure_callback`` of a
    task or in ``default_args``, or as the callback of a DeadlineAlert."""

    template_fields = ()

    def __init__(
        self,
        pipeline: str,
        notifier: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        context: "Context | None" = None,
    ) -> None:
        super().__init__(context)
        self.pipeline, self.notifier, self.arguments = pipeline, notifier, dict(arguments or {})

    async def async_notify(self, context: "Context") -> None:
        """Send the message from the triggerer, where Airflow 3.1 calls deadlines' callbacks."""
        await asyncio.to_thread(self.notify, context)

    def notify(self, context: "Context") -> None:
        alert = alert_of(self.pipeline, context)
        self.log.error("%s", alert)
        if self.notifier is not None:
            chosen = _imported(self.notifier)(**self.arguments)
            chosen({**context, "statelib": alert})


def alert_of(pipeline: str, context: Mapping[str, Any]) -> Alert:
    """Return the alert for a task that failed, or for a run whose deadline has passed."""
    if "deadline" in context:
        run = context["dag_run"]
        name = f"{run['dag_id']} {run.get('dag_run_id') or run.get('run_id')}"
        reason = f"it was due by {context['deadline']['deadline_time']} and is {run['state']}"
        return Alert(pipeline, None, "the run is late", name, reason, "see what its tasks wait for")
    instance = context["ti"]
    reason, hint = _explained(context.get("exception"))
    return Alert(
        pipeline=pipeline,
        checkpoint_id=_checkpoint_id(context),
        what=f"{instance.task_id} failed",
        run=f"{instance.dag_id} {instance.run_id}, try {instance.try_number}",
        reason=reason,
        hint=hint,
        log=getattr(instance, "log_url", ""),
    )


def _explained(exception: object) -> tuple[str, str]:
    """Return the reason and the hint of an exception. An error of statelib has both; a Spark job prints both as one
    line."""
    cause = exception.__cause__ if isinstance(exception, BaseException) else None
    for error in (exception, cause):
        kind, message = getattr(error, "kind", ""), getattr(error, "message", "")
        if kind and message:
            return f"{kind}: {message}", str(getattr(error, "hint", ""))
    text = str(exception or "Airflow ended the task")
    lines = SPARK_LINE.findall(text)
    return (lines[-1] if lines else text), ""


def _checkpoint_id(context: Mapping[str, Any]) -> int | None:
    """Return the id of the checkpoint that the run began; None if the run began none, or it is unknown."""
    pulled = None
    with suppress(Exception):  # an alert goes out even if the API server does not answer
        pulled = context["ti"].xcom_pull(task_ids="begin", key="checkpoint_id")
    return int(pulled) if pulled is not None else None


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
