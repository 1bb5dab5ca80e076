"""The pipeline: the content of a file ``pipelines/<name>.yaml``, checked completely when the object is built."""

import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Self

from pydantic import ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from statelib.definition.checks.whole import STRATEGIES, find_problems
from statelib.definition.declared import DeclaredPipeline
from statelib.definition.document import Document, read_document
from statelib.definition.parts.model import (
    UNKNOWN_KEYS,
    CheckpointSettings,
)
from statelib.definition.parts.source import SourceColumn
from statelib.definition.problems import BAD_PIPELINE, DefinitionError, Problem, dotted
from statelib.errors import InvalidRequestError, NotFoundError, StatelibError

MAX_FILE_BYTES = 1 << 20
_REMEMBERED = 256
"""The number of pipeline files that a process remembers."""
PROBLEMS = "statelib_problems"
_EXPECTED = {
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "string_type": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
}
"""What a value should be, by the type of pydantic's error, whose own text has Python's words."""


class Pipeline(DeclaredPipeline):
    """A pipeline without problems. It is immutable and hashable, and equal after ``model_dump`` and ``model_validate``.

    Its constructor raises pydantic's ValidationError; :func:`load_pipeline` converts this to an InvalidRequestError
    that names file, line and field."""

    @field_validator("checkpoint", mode="after")
    @classmethod
    def _default_strategy(cls, checkpoint: CheckpointSettings, info: ValidationInfo) -> CheckpointSettings:
        if checkpoint.strategy or "backend" not in info.data:
            return checkpoint
        return checkpoint.model_copy(update={"strategy": STRATEGIES[info.data["backend"]][0].value})

    @model_validator(mode="after")
    def _without_problems(self) -> Self:
        problems = list(find_problems(self))
        if problems:
            text = "; ".join(f"{dotted(p.where)}: {p.text}" for p in problems)
            raise PydanticCustomError(PROBLEMS, "{text}", {"text": text, "problems": problems})
        return self

    def allowing_non_restored_state(self) -> "Pipeline":
        """Return a copy of the pipeline for a restore that may leave out stored states which the file no longer has."""
        return self.model_copy(update={"allow_non_restored_state": True})


def load_pipeline(path: str | Path) -> Pipeline:
    """Read and check one pipeline file. A file whose text has not changed is checked once in the life of a process.

    Raises NotFoundError (kind ``no-pipeline-file``), or one InvalidRequestError (kind
    ``bad-pipeline``, or the kind of its problems if they have the same one) whose message has one line
    ``file:line: field.path: problem`` per problem.
    """
    return _checked(Path(path), read_file(Path(path)))


@lru_cache(maxsize=_REMEMBERED)
def _checked(path: Path, text: str) -> Pipeline:
    document = read_document(text)
    problems: Iterable[Problem] = document.problems
    if not problems:
        try:
            return _build(document, path)
        except ValidationError as error:
            problems = [p for details in error.errors() for p in problems_of(details)]
    raise bad_file(path, document, problems)


def load_pipelines(directory: str | Path, named: str | None = None) -> tuple[list[Pipeline], list[DefinitionError]]:
    """Load all ``*.yaml`` and ``*.yml`` files of a directory, in the order of their names. Return the pipelines, and
    one error per file that does not load or has the pipeline name of an earlier file.

    ``named``: the name of a pipeline; files that surely do not have it are left out.

    Raises NotFoundError (kind ``no-pipeline-directory``)."""
    directory = Path(directory)
    if not directory.is_dir():
        raise NotFoundError(
            f"there is no directory {directory.absolute()}: expected the directory of the pipeline files",
            kind="no-pipeline-directory",
            hint="correct STATELIB_PIPELINES, or --directory if it is given",
        )
    pipelines: dict[str, Pipeline] = {}
    errors: list[DefinitionError] = []
    for path in pipeline_files(directory):
        text = ""
        try:
            text = read_file(path)
            if named is not None and not _may_name(path, text, named):
                continue
            pipeline = _checked(path, text)
        except StatelibError as error:
            errors.append(DefinitionError(str(path), error.message, error.hint, error.kind, group=_group_in(text)))
            continue
        except Exception as error:  # noqa: BLE001 - a file with any error must not keep the others from loading
            message = f"{path}: cannot be read: {type(error).__name__}: {error!s:.200}"
            errors.append(DefinitionError(str(path), message, group=_group_in(text)))
            continue
        first = pipelines.setdefault(pipeline.name, pipeline)
        if first is not pipeline:
            line = read_document(read_file(path)).line(("name",))
            message = f"{path}:{line}: name: {first.path} has the name {pipeline.name!r} already"
            errors.append(DefinitionError(str(path), message, pipeline=pipeline.name))
    return list(pipelines.values()), errors


def pipeline_files(directory: Path) -> list[Path]:
    """Return the paths of the pipeline files of a directory, in the order of their names. Files whose name begins with
    a dot are left out, because editors write such files beside those that they edit."""
    return sorted(
        path for path in directory.iterdir() if path.suffix in (".yaml", ".yml") and not path.name.startswith(".")
    )


def _group_in(text: str) -> str:
    """Return the group that a file names that does not load; '' if no line names one."""
    line = re.search(r"""^group:[ \t]*["']?([^\s"'#]+)""", text, re.MULTILINE)
    return line[1] if line else ""


def _may_name(path: Path, text: str, name: str) -> bool:
    """Return whether a file with this text may have a pipeline of this name, or be meant as its file. Only with a
    backslash can YAML write a name in other characters than its own."""
    return name in text or "\\" in text or path.stem == name


def read_file(path: Path) -> str:
    """Return the text of a definition. Raises NotFoundError (``no-pipeline-file``), InvalidRequestError
    (``bad-pipeline``) if it is too large or cannot be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidRequestError(f"{path}: larger than {MAX_FILE_BYTES} bytes", kind="bad-pipeline")
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"there is no file {path}", kind="no-pipeline-file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{path}: cannot be read: {error}", kind="bad-pipeline") from error


def _build(document: Document, path: Path) -> Pipeline:
    data = document.data
    if isinstance(data, dict):
        if "path" in data:
            raise bad_file(path, document, [Problem(("path",), "unknown key, did you mean 'source.path'?")])
        data = {**data, "path": str(path)}
    return Pipeline.model_validate(data)


def problems_of(details: ErrorDetails) -> Iterable[Problem]:
    """Yield the problem of one of pydantic's errors, or the several problems that a validator put into one error."""
    context = details.get("ctx", {})
    where = tuple(details["loc"])
    if details["type"] == PROBLEMS:
        yield from context["problems"]
    elif details["type"] == UNKNOWN_KEYS:
        yield from (Problem((*where, key), text) for key, text in context["texts"])
    elif details["type"] == "missing":
        yield Problem(where, "is missing")
    elif where:
        yield Problem(where, _unfit(details))
    else:
        yield Problem((), "expected a mapping with the keys of a pipeline: name, source, key, states, backend")


def _unfit(details: ErrorDetails) -> str:
    """Return the text about a value of another form than the key has, in the words of YAML."""
    name, value = str(details["loc"][-1]), details["input"]
    if value is None and name.endswith(")") and "(" not in name:
        return (
            "found no value, because YAML takes a comma for the end: write the type in quotes, as in 'decimal(10, 2)'"
        )
    if details.get("ctx", {}).get("class_name") == SourceColumn.__name__:
        return f"expected a type or a mapping, found {_shown(value)}"
    expected = _EXPECTED.get(details["type"]) or details["msg"].removeprefix("Input should be ")
    return f"expected {expected}, found {_shown(value)}"


def _shown(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.60}"


def bad_file(
    path: Path, document: Document, problems: Iterable[Problem], kind: str = BAD_PIPELINE
) -> InvalidRequestError:
    """Return one error with one line per problem. Its kind is the kind of its problems if they have the same one,
    otherwise ``kind``."""
    problems = list(problems)
    kinds = {p.kind for p in problems}
    if len(kinds) == 1 and kinds != {BAD_PIPELINE}:
        (kind,) = kinds
    lines = sorted((document.line(p.where), p.where, p.text) for p in problems)
    texts = [
        f"{path}:{line}: {dotted(where)}: {text}" if where else f"{path}:{line}: {text}" for line, where, text in lines
    ]
    return InvalidRequestError("\n".join(texts), kind=kind)
