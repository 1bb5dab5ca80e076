"""What a pipeline file needs from outside: its users' functions, and Spark's data sources.

Both may be there on the cluster only, so that loading a file does not ask for them. ``pipelines validate``
does: what is certainly wrong is a fault, and what cannot be found here is a warning.
"""

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from statelib.definition.document import read_document
from statelib.definition.pipeline import Pipeline, bad_file, read_file
from statelib.definition.problems import DefinitionError, Problem, Where
from statelib.errors import InvalidRequestError
from statelib.functions.resolve import resolve

SPARKS_FORMATS = (
    "parquet", "orc", "json", "csv", "text", "avro", "xml", "binaryfile", "image", "libsvm", "jdbc", "statestore",
    "state-metadata", "statelib", "statelib-metadata",
)  # fmt: skip
"""The data sources of Spark itself, and statelib's own; Spark does not look at their case."""
OTHERS_FORMATS = (
    "delta", "iceberg", "hudi", "paimon", "lance", "jsonl", "excel", "mongodb", "bigquery", "snowflake", "cassandra",
    "elasticsearch", "opensearch", "redshift", "kafka", "deltasharing",
)  # fmt: skip
"""Data sources that come as packages; the cluster may have any other, too."""
_ALIKE = 0.8


@dataclass(frozen=True)
class OutsideFindings:
    """At most one of each for each pipeline file. ``warnings``: what may well be there on the cluster."""

    faults: tuple[DefinitionError, ...]
    warnings: tuple[DefinitionError, ...]


def check_outside(pipelines: Iterable[Pipeline]) -> OutsideFindings:
    """Look for the functions and the formats of pipelines, as far as they can be looked for on this host. This
    imports the functions' modules."""
    found = [(p, [*_check_format(p.source.format), *_check_functions(p)]) for p in pipelines]
    faults, warnings = (
        tuple(
            _of_file(pipeline, problems)
            for pipeline, findings in found
            if (problems := [problem for problem, certain in findings if certain is wanted])
        )
        for wanted in (True, False)
    )
    return OutsideFindings(faults, warnings)


def _of_file(pipeline: Pipeline, problems: list[Problem]) -> DefinitionError:
    path = Path(pipeline.path)
    error = bad_file(path, read_document(read_file(path)), problems)
    return DefinitionError(pipeline.path, error.message, error.hint, error.kind)


def _check_format(name: str) -> Iterator[tuple[Problem, bool]]:
    """Whoever writes a class's name knows what the cluster has."""
    where, known = ("source", "format"), name.lower()
    if known in SPARKS_FORMATS or known in OTHERS_FORMATS or "." in name:
        return
    close = get_close_matches(known, SPARKS_FORMATS, 1, _ALIKE)
    if close:
        yield Problem(where, f"unknown format {name!r}, did you mean {close[0]!r}?", "unknown-format"), True
    else:
        text = f"{name!r} is none of Spark's own formats: the cluster must have the package that brings it"
        yield Problem(where, text, "unknown-format"), False


def _check_functions(pipeline: Pipeline) -> Iterator[tuple[Problem, bool]]:
    references: list[tuple[Where, str | None]] = [(("hooks", name), hook) for name, hook in pipeline.hooks]
    for name, state in pipeline.states.items():
        references += [(("states", name, "function"), state.function), (("states", name, "on_timer"), state.on_timer)]
    for where, reference in references:
        found = _check_function(reference) if reference else None
        if found is not None:
            text, sure = found
            yield Problem(where, text, "bad-function"), sure


def _check_function(reference: str) -> tuple[str, bool] | None:
    """What is wrong with a function, and whether that is certain; None where it is there."""
    package = reference.partition(":")[0].partition(".")[0]
    if package not in sys.modules and importlib.util.find_spec(package) is None:
        return f"{reference}: there is no package {package!r} on this host: the cluster must have it", False
    try:
        resolve(reference)
    except InvalidRequestError as error:
        return error.message, True
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything when it is imported
        return f"{reference} cannot be imported on this host: {type(error).__name__}: {error}", False
    return None
