"""Run an operation for many pipelines, each by itself, so that an error of one never stops the others."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from statelib.errors import RetryableError, StatelibError
from statelib.flows.wiring import Deployment
from statelib.model.ids import PipelineName

T = TypeVar("T")


@dataclass(frozen=True)
class Trouble:
    """An error that ended an operation for one pipeline. ``message`` names the pipeline."""

    pipeline: PipelineName
    kind: str
    message: str
    hint: str


@dataclass
class Troubles:
    """The errors of several operations in a row, per pipeline. A pipeline with an error is left out of the later
    ones."""

    errors: dict[PipelineName, StatelibError] = field(default_factory=dict)

    def each(self, names: Iterable[PipelineName], operation: Callable[[PipelineName], T]) -> list[T]:
        """Run the operation for every pipeline that has no error yet, and return the results of those that succeed."""
        results = []
        for name in names:
            if name in self.errors:
                continue
            try:
                results.append(operation(name))
            except StatelibError as error:
                self.errors[name] = error
        return results

    def in_order(self) -> tuple[Trouble, ...]:
        """Return the errors in the order in which they occurred."""
        return tuple(Trouble(name, e.kind, _naming(name, e), e.hint) for name, e in self.errors.items())

    def check(self) -> None:
        """Raise the collected errors as one error that names every pipeline concerned. Do nothing if there are none.

        A single error keeps its class, kind and hint. Several become one with the kind ``pipelines-in-trouble``: a
        RetryableError if a retry can help one of them, otherwise of the class of the first."""
        if not self.errors:
            return
        troubles, errors = self.in_order(), list(self.errors.values())
        first = errors[0]
        if len(errors) == 1:
            raise type(first)(troubles[0].message, kind=first.kind, hint=first.hint) from first
        lines = [f"{trouble.message} ({trouble.hint})" if trouble.hint else trouble.message for trouble in troubles]
        cls = RetryableError if any(isinstance(error, RetryableError) for error in errors) else type(first)
        raise cls(
            f"{len(lines)} pipelines have errors, all others are done: " + "; ".join(lines),
            kind="pipelines-in-trouble",
            hint="each part of the message says what to do for one of them",
        ) from first


def names(deployment: Deployment, pipeline: str | None) -> tuple[PipelineName, ...]:
    """Return the pipelines of the catalog, or only ``pipeline``; nothing if that one never began a checkpoint."""
    return tuple(name for name in deployment.catalog().pipelines() if pipeline in (None, name))


def for_each(
    names: Iterable[PipelineName], operation: Callable[[PipelineName], T], troubles: Troubles | None = None
) -> list[T]:
    """Run the operation for every pipeline, and return the results of those that succeed. Errors are added to
    ``troubles``; if that is None, they are raised once all pipelines are done."""
    collected = Troubles() if troubles is None else troubles
    results = collected.each(names, operation)
    if troubles is None:
        collected.check()
    return results


def _naming(name: PipelineName, error: StatelibError) -> str:
    named = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", error.message)
    return error.message if named else f"{name}: {error.message}"
