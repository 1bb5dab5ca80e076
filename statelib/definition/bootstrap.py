"""The bootstrap file: a small YAML file that describes a savepoint to make from tables. It is checked completely when
it is read."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Literal, Self

import pyarrow as pa
from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypeAliasType

from statelib.definition.document import read_document
from statelib.definition.parts.model import Names, Parallelism, Part
from statelib.definition.parts.types import type_of
from statelib.definition.pipeline import PROBLEMS, bad_file, problems_of, read_file
from statelib.definition.problems import Problem, Where, dotted
from statelib.errors import StatelibError
from statelib.model.key_hash import FieldsHash
from statelib.model.operator_state import OperatorStateDescriptor, OperatorStateMode
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import VOID, Opaque, Pojo, StateType
from statelib.serializers.entries.key_hashes import rule_types
from statelib.serializers.registry import codec_of

_MODES = {
    "list": OperatorStateMode.SPLIT_DISTRIBUTE,
    "union": OperatorStateMode.UNION,
    "broadcast": OperatorStateMode.BROADCAST,
}
Of = TypeAliasType("Of", "str | tuple[Of, ...] | dict[str, Of]")
"""The source of a value: a column (``a.b`` within a struct), or one column per part of a tuple, a row or a class, in
order or by name."""


class Rows(Part):
    """The rows of a Parquet file or directory, or of one state in a snapshot (``<pipeline>/<id>`` or a path). The
    columns of a snapshot's state are ``key``, ``value`` and, by kind of state, ``user_key`` and ``namespace``."""

    parquet: str | None = None
    snapshot: str | None = None
    operator: str | None = None
    state: str | None = None


class Typed(Part):
    """A type in the form of a pipeline file, and the columns of its values."""

    type: str
    of: Of


class Hash(Part):
    """The ``hashCode`` of a class: computed from its fields (``of``) in Java's usual form, with factor ``times`` and
    first value ``start``; or read from a column, as hash code (``column``) or as key group (``key_group``)."""

    of: Names = ()
    times: int = 31
    start: int = 1
    column: str | None = None
    key_group: str | None = None


class Key(Typed):
    """The type and columns of the key, and the hash of a key that is a class."""

    hash: Hash | None = None


class StateOf(Part):
    """One keyed state. There is one row per key, in a map state one row per user key. A list state's column has lists.

    ``timers``: the timers of a service. The state has one of Flink's two names, ``_timer_state/event_<service>`` or
    ``_timer_state/processing_<service>``; ``of`` is the column of their times, and ``type`` is left out."""

    kind: Literal["value", "list", "map", "reducing", "aggregating", "timers"]
    type: str = ""
    of: Of
    user_key: Typed | None = None
    namespace: Typed | None = None
    rows: Rows | None = None


class OperatorStateOf(Part):
    """One state of an operator's subtasks. ``list`` and ``union``: each row is an element, in the order of the rows.
    ``broadcast``: each row is an entry of the map, and no two rows have the same ``user_key``."""

    mode: Literal["list", "union", "broadcast"]
    type: str
    of: Of
    user_key: Typed | None = None
    rows: Rows | None = None


class OperatorOf(Part):
    """One operator. ``rows``: the rows of states that have no ``rows`` of their own. ``key``: the key of the keyed
    states, ``states``."""

    key: Key | None = None
    rows: Rows | None = None
    states: dict[str, StateOf] = Field(default_factory=dict)
    operator_states: dict[str, OperatorStateOf] = Field(default_factory=dict)


class Bootstrap(Part):
    """The whole file: operators by uid. ``max_parallelism`` must be equal to the job's."""

    name: str
    max_parallelism: Parallelism = 128
    parallelism: Parallelism = 1
    compression: Literal["snappy", "none"] = "snappy"
    operators: Annotated[dict[str, OperatorOf], Field(min_length=1)]

    @model_validator(mode="after")
    def _without_problems(self) -> Self:
        problems = list(_problems(self))
        if problems:
            text = "; ".join(f"{dotted(p.where)}: {p.text}" for p in problems)
            raise PydanticCustomError(PROBLEMS, "{text}", {"text": text, "problems": problems})
        return self

    @property
    def keyed(self) -> dict[str, Key]:
        """The keys of the operators with keyed state, by uid, in the order of the file."""
        return {uid: operator.key for uid, operator in self.operators.items() if operator.key is not None}

    def operator(self, uid: str) -> KeyedOperator:
        """Return uid, schema, parallelism and hash rule of one of the :attr:`keyed` operators."""
        key, described = self.keyed[uid], self.operators[uid]
        states = tuple(_descriptor(name, state) for name, state in described.states.items())
        schema = KeyedStateSchema(type_of(key.type), self.max_parallelism, states)
        return KeyedOperator(uid, schema, self.parallelism, rule_of(key))

    def operator_state(self, uid: str, name: str) -> OperatorStateDescriptor:
        """Return the descriptor of one of the operator's operator states."""
        return _operator_descriptor(name, self.operators[uid].operator_states[name])


def load_bootstrap(path: str | Path) -> Bootstrap:
    """Read and check a bootstrap file.

    Raises NotFoundError (``no-pipeline-file``), or one InvalidRequestError (``bad-bootstrap``) whose message has one
    line ``file:line: field.path: problem`` per problem."""
    path = Path(path)
    document = read_document(read_file(path))
    problems = document.problems
    if not problems:
        try:
            return Bootstrap.model_validate(document.data)
        except ValidationError as error:
            problems = tuple(p for details in error.errors() for p in problems_of(details))
    raise bad_file(path, document, problems, kind="bad-bootstrap")


def rule_of(key: Key) -> FieldsHash | None:
    """Return the rule for the hash of a key, None if the hash follows from the key's type or is read from a column."""
    return FieldsHash(key.hash.of, key.hash.times, key.hash.start) if key.hash and key.hash.of else None


def _descriptor(name: str, state: StateOf) -> StateDescriptor:
    return StateDescriptor(
        name,
        StateKind(state.kind),
        type_of(state.type) if state.type else VOID,
        type_of(state.user_key.type) if state.user_key else None,
        type_of(state.namespace.type) if state.namespace else VOID,
    )


def _operator_descriptor(name: str, state: OperatorStateOf) -> OperatorStateDescriptor:
    key = state.user_key
    return OperatorStateDescriptor(name, _MODES[state.mode], type_of(state.type), type_of(key.type) if key else None)


def _problems(bootstrap: Bootstrap) -> Iterator[Problem]:
    if bootstrap.parallelism > bootstrap.max_parallelism:
        yield Problem(("parallelism",), f"expected at most max_parallelism, {bootstrap.max_parallelism}")
    for uid, operator in bootstrap.operators.items():
        yield from _operator_problems(("operators", uid), operator)


def _operator_problems(where: Where, operator: OperatorOf) -> Iterator[Problem]:
    if not operator.states and not operator.operator_states:
        yield Problem((*where, "states"), "expected one state or more, here or in operator_states")
    elif bool(operator.states) != (operator.key is not None):
        text = "is missing" if operator.states else "belongs to keyed states, and there are no 'states'"
        yield Problem((*where, "key"), text)
    if operator.key is not None:
        yield from _key_problems((*where, "key"), operator.key)
    yield from _rows_problems((*where, "rows"), operator.rows)
    for name, state in operator.states.items():
        yield from _state_problems((*where, "states", name), name, state, operator.rows)
    for name, described in operator.operator_states.items():
        if name in operator.states:
            yield Problem((*where, "operator_states", name), "'states' has a state of this name too")
        yield from _operator_state_problems((*where, "operator_states", name), name, described, operator.rows)


def _operator_state_problems(
    where: Where, name: str, state: OperatorStateOf, default: Rows | None
) -> Iterator[Problem]:
    problems = list(_type_problems((*where, "type"), state.type))
    if state.user_key is not None:
        problems += _type_problems((*where, "user_key", "type"), state.user_key.type)
    yield from problems or _raised(where, lambda: _operator_descriptor(name, state))
    yield from _source_problems(where, state.rows, default)


def _key_problems(where: Where, key: Key) -> Iterator[Problem]:
    type_problems = list(_type_problems((*where, "type"), key.type))
    if type_problems:
        yield from type_problems
        return
    type_, hash_ = type_of(key.type), key.hash
    if not isinstance(type_, Pojo | Opaque):
        if hash_ is not None:
            yield Problem((*where, "hash"), f"{key.type}: Flink defines the hash of such keys")
        yield from _raised((*where, "type"), lambda: codec_of(type_).java_hash(_no_values(type_)))
    elif hash_ is None or [bool(hash_.of), bool(hash_.column), bool(hash_.key_group)].count(True) != 1:
        yield Problem(
            (*where, "hash"),
            f"{key.type}: only the class defines its hashCode: expected one of 'of' (its fields), 'column' (a "
            "column of hash codes) and 'key_group' (a column of key groups)",
        )
    elif hash_.of:
        rule = FieldsHash(hash_.of)
        yield from _raised((*where, "hash", "of"), lambda: rule_types(type_, rule))


def _state_problems(where: Where, name: str, state: StateOf, default: Rows | None) -> Iterator[Problem]:
    problems = list(_type_problems((*where, "type"), state.type)) if state.type else []
    if (state.kind == "timers") == bool(state.type):
        problems.append(Problem((*where, "type"), "timers have none" if state.type else "is missing"))
    for part, typed in (("user_key", state.user_key), ("namespace", state.namespace)):
        if typed is not None:
            problems += _type_problems((*where, part, "type"), typed.type)
    yield from problems or _raised(where, lambda: _descriptor(name, state))
    yield from _source_problems(where, state.rows, default)


def _source_problems(where: Where, rows: Rows | None, default: Rows | None) -> Iterator[Problem]:
    yield from _rows_problems((*where, "rows"), rows)
    if rows is None and default is None:
        yield Problem((*where, "rows"), "is missing, and its operator has none")


def _rows_problems(where: Where, rows: Rows | None) -> Iterator[Problem]:
    if rows is None:
        return
    if (rows.parquet is None) == (rows.snapshot is None):
        yield Problem(where, "expected one of parquet and snapshot")
    elif rows.snapshot is not None and rows.state is None:
        yield Problem((*where, "state"), "is missing: the name of a state in the snapshot")
    elif rows.parquet is not None and (rows.state or rows.operator):
        yield Problem(where, "operator and state belong to snapshot, not to parquet")


def _type_problems(where: Where, text: str) -> Iterator[Problem]:
    yield from _raised(where, lambda: codec_of(type_of(text)))


def _raised(where: Where, attempt: Callable[[], object]) -> Iterator[Problem]:
    """Yield the error that ``attempt`` raises as a problem of the field."""
    try:
        attempt()
    except StatelibError as error:
        yield Problem(where, f"{error.message}{f' ({error.hint})' if error.hint else ''}")


def _no_values(type_: StateType) -> pa.Array:
    return pa.nulls(0, codec_of(type_).arrow_type)
