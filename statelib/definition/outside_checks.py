"""Checks of what a pipeline file uses from outside: functions of users, and data sources of Spark.

Both may be installed on the cluster only, so that loading a file does not check them. ``pipelines validate``
does: what is certainly wrong is a fault, and what is not installed on this host is a warning.
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
from statelib.functions.user_code.resolve import resolve

SPARKS_FORMATS = (
    "parquet", "orc", "json", "csv", "text", "avro", "xml", "binaryfile", "image", "libsvm", "jdbc", "statestore",
    "state-metadata", "statelib", "statelib-metadata",
)  # fmt: skip
"""The data sources of Spark itself, and statelib's own. Spark ignores upper and lower case in their names."""
OTHERS_FORMATS = (
    "delta", "iceberg", "hudi", "paimon", "lance", "jsonl", "excel", "mongodb", "bigquery", "snowflake", "cassandra",
    "elasticsearch", "opensearch", "redshift", "kafka", "deltasharing",
)  # fmt: skip
"""Data sources that common packages bring. The cluster may have others too."""
_ALIKE = 0.8


@dataclass(frozen=True)
class OutsideFindings:
    """The results of the checks: at most one fault and one warning per pipeline file. ``warnings``: functions and
    formats that the cluster may have, but this host does not."""

    faults: tuple[DefinitionError, ...]
    warnings: tuple[DefinitionError, ...]


def check_outside(pipelines: Iterable[Pipeline]) -> OutsideFindings:
    """Check the functions and formats of pipelines as far as this host can. This imports the modules of the
    functions."""
    by_pipeline = [(p, [*_check_formats(p), *_check_functions(p)]) for p in pipelines]
    faults, warnings = (
        tuple(
            _file_error(pipeline, problems)
            for pipeline, findings in by_pipeline
            if (problems := [problem for problem, certain in findings if certain is wanted])
        )
        for wanted in (True, False)
    )
    return OutsideFindings(faults, warnings)


def _file_error(pipeline: Pipeline, problems: list[Problem]) -> DefinitionError:
    path = Path(pipeline.path)
    error = bad_file(path, read_document(read_file(path)), problems)
    return DefinitionError(pipeline.path, error.message, error.hint, error.kind)


def _check_formats(pipeline: Pipeline) -> Iterator[tuple[Problem, bool]]:
    for field, source in pipeline.inputs.items():
        yield from _check_format(source.file_format, (*field.split(".", 1), "format"))


def _check_format(name: str, where: Where) -> Iterator[tuple[Problem, bool]]:
    """Yield the problem of a format, and whether it is certain. A name with a dot is a class, and is not checked."""
    lower_name = name.lower()
    if lower_name in SPARKS_FORMATS or lower_name in OTHERS_FORMATS or "." in name:
        return
    close = get_close_matches(lower_name, SPARKS_FORMATS, 1, _ALIKE)
    if close:
        yield Problem(where, f"unknown format {name!r}, did you mean {close[0]!r}?", "unknown-format"), True
    else:
        text = f"{name!r} is not one of Spark's own formats: the cluster must have a package with this format"
        yield Problem(where, text, "unknown-format"), False


def _check_functions(pipeline: Pipeline) -> Iterator[tuple[Problem, bool]]:
    references: list[tuple[Where, str | None]] = [(("hooks", name), hook) for name, hook in pipeline.hooks]
    for name, state in pipeline.states.items():
        references += [(("states", name, "function"), state.function), (("states", name, "on_timer"), state.on_timer)]
    for where, reference in references:
        finding = _check_function(reference) if reference else None
        if finding is not None:
            text, certain = finding
            yield Problem(where, text, "bad-function"), certain


def _check_function(reference: str) -> tuple[str, bool] | None:
    """Return the problem of a function and whether it is certain, None if the function can be imported."""
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
