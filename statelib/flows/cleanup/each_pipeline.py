"""Stories over many pipelines: each pipeline by itself, so that the trouble of one never stops the others."""

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
    """What kept a story from one pipeline. ``message`` names it."""

    pipeline: PipelineName
    kind: str
    message: str
    hint: str


@dataclass
class Troubles:
    """The troubles of stories that follow one another; a pipeline in trouble is left out of the later ones."""

    errors: dict[PipelineName, StatelibError] = field(default_factory=dict)

    def each(self, names: Iterable[PipelineName], story: Callable[[PipelineName], T]) -> list[T]:
        """Run the story for every pipeline that is in no trouble yet; return the results of those that went well."""
        results = []
        for name in names:
            if name in self.errors:
                continue
            try:
                results.append(story(name))
            except StatelibError as error:
                self.errors[name] = error
        return results

    def found(self) -> tuple[Trouble, ...]:
        """The troubles, in the order in which they were met."""
        return tuple(Trouble(name, e.kind, _naming(name, e), e.hint) for name, e in self.errors.items())

    def check(self) -> None:
        """Raise what was collected as one error that names every pipeline in trouble; nothing where there is none.

        One trouble keeps its class, kind and hint. Several are a RetryableError where a retry can help one of them, and
        else have the class of the first, with the kind ``pipelines-in-trouble``."""
        if not self.errors:
            return
        found, errors = self.found(), list(self.errors.values())
        first = errors[0]
        if len(errors) == 1:
            raise type(first)(found[0].message, kind=first.kind, hint=first.hint) from first
        lines = [f"{trouble.message} ({trouble.hint})" if trouble.hint else trouble.message for trouble in found]
        cls = RetryableError if any(isinstance(error, RetryableError) for error in errors) else type(first)
        raise cls(
            f"{len(lines)} pipelines are in trouble, all others were done: " + "; ".join(lines),
            kind="pipelines-in-trouble",
            hint="each part says what to do for one of them",
        ) from first


def names(deployment: Deployment, pipeline: str | None) -> tuple[PipelineName, ...]:
    """All pipelines that the catalog knows, or that one; none where it never began a checkpoint."""
    return tuple(name for name in deployment.catalog().pipelines() if pipeline in (None, name))


def for_each(
    names: Iterable[PipelineName], story: Callable[[PipelineName], T], troubles: Troubles | None = None
) -> list[T]:
    """Run the story for every pipeline by itself. What fails is added to ``troubles``; without them it is raised, once
    all others are done."""
    collected = Troubles() if troubles is None else troubles
    results = collected.each(names, story)
    if troubles is None:
        collected.check()
    return results


def _naming(name: PipelineName, error: StatelibError) -> str:
    named = re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", error.message)
    return error.message if named else f"{name}: {error.message}"
