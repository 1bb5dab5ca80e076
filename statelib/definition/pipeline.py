"""Pipeline: what a file ``pipelines/<name>.yaml`` says, checked from end to end when it is built."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import ErrorDetails, PydanticCustomError

from statelib.definition.checks.whole import STRATEGIES, find_problems
from statelib.definition.document import Document, read_document
from statelib.definition.model import (
    UNKNOWN_KEYS,
    Alerts,
    Checkpoint,
    Names,
    OperatorStateDefinition,
    Parallelism,
    Part,
    Retries,
    Schedule,
    Source,
    StateDefinition,
    Switch,
)
from statelib.definition.problems import BAD_PIPELINE, DefinitionError, Problem, dotted
from statelib.definition.quality import Checks
from statelib.definition.states import descriptor_of, function_of, operator_descriptor_of, timers_of, ttl_of
from statelib.definition.types import type_of
from statelib.errors import InvalidRequestError, NotFoundError, StatelibError
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.state import KeyedStateSchema
from statelib.model.ttl import TtlConfig
from statelib.model.types import StateType, Tuple

if TYPE_CHECKING:
    from statelib.functions.state_function import StateFunction

MAX_FILE_BYTES = 1 << 20
PROBLEMS = "statelib_problems"


class Pipeline(Part):
    """A pipeline: immutable, hashable, and the same again after ``model_dump`` and ``model_validate``.

    Building one raises pydantic's ValidationError; :func:`load_pipeline` turns it into an
    InvalidRequestError that names file, line and field. ``path``: the file it came from, ''
    if none. ``on_null_key``: whether an event without a key fails the run or is dropped and
    counted; ``on_gap``: whether an interval may be left out. ``schedule`` None: run by hand only.
    ``uid``: what the operator's id is made of, the name unless given; ``renamed_from``: names and uids
    that it had before; ``uid_hash``: the id itself, in hex. ``allow_non_restored_state``: stored
    states that the file does not have any more may be left out.
    """

    name: str
    uid: str = ""
    uid_hash: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""
    renamed_from: Names = ()
    description: str = ""
    schedule: Schedule | None = None
    source: Source
    key: Names
    on_null_key: Literal["fail", "drop"] = "fail"
    on_gap: Literal["fail", "allow"] = "fail"
    states: dict[str, StateDefinition]
    operator_states: dict[str, OperatorStateDefinition] = Field(default={})
    backend: Literal["heap", "rocksdb"]
    parallelism: Parallelism = 1
    max_parallelism: Parallelism = 128
    checkpoint: Checkpoint = Field(default=Checkpoint(), validate_default=True)
    checks: Checks = Checks()
    retries: Retries = Retries()
    alerts: Alerts = Alerts()
    allow_non_restored_state: Switch = False
    path: str = ""

    @field_validator("checkpoint", mode="after")
    @classmethod
    def _default_strategy(cls, checkpoint: Checkpoint, info: ValidationInfo) -> Checkpoint:
        if checkpoint.strategy or "backend" not in info.data:
            return checkpoint
        return checkpoint.model_copy(update={"strategy": STRATEGIES[info.data["backend"]][0]})

    @model_validator(mode="after")
    def _without_problems(self) -> Self:
        problems = list(find_problems(self))
        if problems:
            text = "; ".join(f"{dotted(p.where)}: {p.text}" for p in problems)
            raise PydanticCustomError(PROBLEMS, "{text}", {"text": text, "problems": problems})
        return self

    def column_types(self) -> dict[str, StateType]:
        """The declared columns and their types, in the order of the file."""
        return {name: type_of(text) for name, text in self.source.columns.items()}

    def key_type(self) -> StateType:
        """The type of the key column; a Tuple where there are several."""
        columns = self.column_types()
        types = tuple(columns[name] for name in self.key)
        return types[0] if len(types) == 1 else Tuple(types)

    def schema(self) -> KeyedStateSchema:  # type: ignore[override]  # pydantic's own is deprecated
        columns = self.column_types()
        states = tuple(descriptor_of(name, state, columns) for name, state in self.states.items())
        timers = tuple(timers for name, state in self.states.items() for timers in timers_of(name, state))
        return KeyedStateSchema(self.key_type(), self.max_parallelism, states + timers)

    def operator_descriptors(self) -> tuple[OperatorStateDescriptor, ...]:
        """The declared operator states, in the order of the file."""
        return tuple(operator_descriptor_of(name, state) for name, state in self.operator_states.items())

    def ttl(self) -> dict[str, TtlConfig]:
        """How long states live, of those that expire."""
        found = {name: ttl_of(state) for name, state in self.states.items()}
        return {name: config for name, config in found.items() if config is not None}

    def allowing_non_restored_state(self) -> "Pipeline":
        """The same pipeline, for one restore that may leave states out."""
        return self.model_copy(update={"allow_non_restored_state": True})

    def functions(self) -> tuple["StateFunction", ...]:
        """One function a state, in the order of the file. User functions are imported when applied."""
        columns, drop = self.column_types(), self.on_null_key == "drop"
        return tuple(function_of(name, state, columns, self.key, drop) for name, state in self.states.items())


def load_pipeline(path: str | Path) -> Pipeline:
    """Read and check one pipeline file.

    Raises NotFoundError (kind ``no-pipeline-file``), or one InvalidRequestError (kind
    ``bad-pipeline``, or that of all its problems) whose message has a line ``file:line: field.path: problem`` for
    each problem.
    """
    path = Path(path)
    document = read_document(read_file(path))
    problems: Iterable[Problem] = document.problems
    if not problems:
        try:
            return _build(document, path)
        except ValidationError as error:
            problems = [p for details in error.errors() for p in problems_of(details)]
    raise bad_file(path, document, problems)


def load_pipelines(directory: str | Path) -> tuple[list[Pipeline], list[DefinitionError]]:
    """All ``*.yaml`` and ``*.yml`` files of a directory, by file name; those that do not load are
    listed, and so is a name that a file before has taken.

    Raises NotFoundError (kind ``no-pipeline-directory``)."""
    directory = Path(directory)
    if not directory.is_dir():
        raise NotFoundError(f"there is no directory {directory}", kind="no-pipeline-directory")
    pipelines: dict[str, Pipeline] = {}
    errors: list[DefinitionError] = []
    for path in sorted(p for p in directory.iterdir() if p.suffix in (".yaml", ".yml")):
        try:
            pipeline = load_pipeline(path)
        except StatelibError as error:
            errors.append(DefinitionError(str(path), error.message, error.hint, error.kind))
            continue
        except Exception as error:  # noqa: BLE001 - whatever one file holds, the others are loaded
            errors.append(DefinitionError(str(path), f"{path}: cannot be read: {type(error).__name__}: {error!s:.200}"))
            continue
        first = pipelines.setdefault(pipeline.name, pipeline)
        if first is not pipeline:
            line = read_document(read_file(path)).line(("name",))
            message = f"{path}:{line}: name: {pipeline.name!r} is the name of {first.path} already"
            errors.append(DefinitionError(str(path), message))
    return list(pipelines.values()), errors


def read_file(path: Path) -> str:
    """The text of a definition; raises NotFoundError (``no-pipeline-file``), InvalidRequestError."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InvalidRequestError(f"{path}: larger than {MAX_FILE_BYTES} bytes", kind="bad-pipeline")
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError(f"there is no pipeline file {path}", kind="no-pipeline-file") from error
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
    """One of pydantic's errors, or the problems that were carried through pydantic as one error."""
    context = details.get("ctx", {})
    where = tuple(details["loc"])
    if details["type"] == PROBLEMS:
        yield from context["problems"]
    elif details["type"] == UNKNOWN_KEYS:
        yield from (Problem((*where, key), text) for key, text in context["texts"])
    elif details["type"] == "missing":
        yield Problem(where, "is missing")
    elif where:
        message = details["msg"].removeprefix("Input should be ")
        yield Problem(where, f"expected {message}, found {details['input']!r:.60}")
    else:
        yield Problem((), "expected a mapping with the keys of a pipeline: name, source, key, states, backend")


def bad_file(
    path: Path, document: Document, problems: Iterable[Problem], kind: str = BAD_PIPELINE
) -> InvalidRequestError:
    """Return one error with a line for each problem. Its kind is that of its problems where they have the same,
    else ``kind``."""
    problems = list(problems)
    kinds = {p.kind for p in problems}
    if len(kinds) == 1 and kinds != {BAD_PIPELINE}:
        (kind,) = kinds
    lines = sorted((document.line(p.where), p.where, p.text) for p in problems)
    texts = [
        f"{path}:{line}: {dotted(where)}: {text}" if where else f"{path}:{line}: {text}" for line, where, text in lines
    ]
    return InvalidRequestError("\n".join(texts), kind=kind)
