"""Who is told when a run of a pipeline fails or is late, and what the message says."""

import asyncio
import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from statelib.visible import visible

if TYPE_CHECKING:
    from airflow.sdk import Context

SPARK_LINE = re.compile(r"^statelib: (.+)$", re.MULTILINE)
"""How a Spark job of ours ends its output when it fails; Airflow's exception quotes the end of the output."""


@dataclass(frozen=True)
class Alert:
    """What a message says; as text, the whole message. In the templates of a notifier it is ``statelib``:
    ``{{ statelib }}``, ``{{ statelib.title }}``, ``{{ statelib.hint }}`` and so on. The reason may quote events:
    a template of HTML takes ``{{ statelib.html }}``."""

    pipeline: str
    checkpoint_id: int | None
    what: str
    run: str
    reason: str
    hint: str = ""
    log: str = ""

    @property
    def title(self) -> str:
        checkpoint = "no checkpoint begun" if self.checkpoint_id is None else f"checkpoint {self.checkpoint_id}"
        return f"statelib: {self.pipeline}, {checkpoint}: {self.what}"

    @property
    def html(self) -> str:
        """The whole message as text of an HTML page or mail, in which nothing is markup."""
        return escape(str(self))

    def __str__(self) -> str:
        lines = [self.title, f"run: {self.run}", f"reason: {self.reason}"]
        more = {"hint": self.hint, "log": self.log}
        return visible("\n".join(lines + [f"{name}: {text}" for name, text in more.items() if text]), lines=True)


class StatelibNotifier(BaseNotifier):
    """Tells of a failed task, or of a missed deadline, through any of Airflow's notifiers.

    ``notifier``: dotted path of its class; ``arguments``: its own, whose templates may use ``statelib`` (an
    :class:`Alert`). Without a notifier the message goes to the log, and it always does. To be given as
    ``on_failure_callback`` of a task or in ``default_args``, or as the callback of a DeadlineAlert."""

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
    """What there is to say of a task that failed, or of a run whose deadline has passed."""
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
    """Reason and hint. An error of statelib has both, the Spark job prints them as one line."""
    cause = exception.__cause__ if isinstance(exception, BaseException) else None
    for error in (exception, cause):
        kind, message = getattr(error, "kind", ""), getattr(error, "message", "")
        if kind and message:
            return f"{kind}: {message}", str(getattr(error, "hint", ""))
    text = str(exception or "Airflow ended the task")
    said = SPARK_LINE.findall(text)
    return (said[-1] if said else text), ""


def _checkpoint_id(context: Mapping[str, Any]) -> int | None:
    """The checkpoint of the run, from wherever it was begun; None if that cannot be told."""
    instance = context["ti"]
    pull = getattr(instance, "xcom_pull", None)
    pulled = pull(task_ids="begin", key="checkpoint_id") if pull else None
    return int(pulled) if pulled is not None else None


def _imported(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)
