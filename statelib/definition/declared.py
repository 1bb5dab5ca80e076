"""The declared pipeline: fields of a pipeline file in the right form. ``checks`` checks whether they fit together."""

from collections.abc import Iterator
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from statelib.definition.parts.model import (
    Alerts,
    CheckpointSettings,
    Hooks,
    Names,
    OperatorStateDefinition,
    OutputDefinition,
    Parallelism,
    Part,
    Schedule,
    StateDefinition,
    Switch,
    TaskRetries,
)
from statelib.definition.parts.publish import Publication
from statelib.definition.parts.quality import Checks
from statelib.definition.parts.source import Source
from statelib.definition.parts.types import type_of
from statelib.definition.states import (
    descriptor_of,
    function_of,
    operator_descriptor_of,
    states_beside,
    ttl_of,
    with_whole_rows,
)
from statelib.model.choices import Backend
from statelib.model.ids import PipelineName
from statelib.model.operator_state import OperatorStateDescriptor
from statelib.model.state import KeyedStateSchema
from statelib.model.ttl import TtlConfig
from statelib.model.types import StateType, Tuple

if TYPE_CHECKING:
    from statelib.functions.state_function import StateFunction


def _manual(value: object) -> object:
    return None if value == "manual" else value


class DeclaredPipeline(Part):
    """The fields of a pipeline file, and values that follow from them alone.

    ``path``: the file that it was read from, '' if none. ``on_null_key``: whether an event without a key fails the
    run or is dropped and counted. ``on_gap``: whether an interval may be left out. ``schedule`` None, in a file
    also ``manual``: the pipeline is run by hand only. ``source``: the only source; ``sources``: several sources by
    name. ``group``: the group of pipelines whose snapshots one Spark job takes, '' if none. ``order_by``: the columns
    that say whether an event comes before or after a delete of its key. ``uid``: the text that the operator's id is
    computed from, '' means the name. ``renamed_from``: earlier names and uids.
    ``uid_hash``: the operator's id itself, in hex. ``allow_non_restored_state``: stored states that the file no
    longer has may be left out."""

    name: PipelineName
    group: Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,199})?$")] = ""
    uid: str = ""
    uid_hash: Annotated[str, Field(pattern=r"^([0-9a-f]{32})?$")] = ""
    renamed_from: Names = ()
    description: str = ""
    schedule: Annotated[
        Schedule | None, BeforeValidator(_manual, json_schema_input_type=Schedule | Literal["manual"] | None)
    ] = None
    source: Source | None = None
    sources: dict[str, Source] = Field(default={})
    key: Names
    order_by: Names = ()
    on_null_key: Literal["fail", "drop"] = "fail"
    on_gap: Literal["fail", "allow"] = "fail"
    states: dict[str, StateDefinition]
    operator_states: dict[str, OperatorStateDefinition] = Field(default={})
    side_data: Names = ()
    outputs: dict[str, OutputDefinition] = Field(default={})
    hooks: Hooks = Hooks()
    backend: Backend
    parallelism: Parallelism = 1
    max_parallelism: Parallelism = 128
    checkpoint: CheckpointSettings = Field(default=CheckpointSettings(), validate_default=True)
    checks: Checks = Checks()
    publish: dict[str, Publication] = Field(default={})
    retries: TaskRetries = TaskRetries()
    alerts: Alerts = Alerts()
    allow_non_restored_state: Switch = False
    path: str = ""

    @property
    def zone(self) -> tzinfo:
        """The time zone of the schedule, UTC if there is none. Times of the pipeline without an offset are in it."""
        return self.schedule.zone if self.schedule else UTC

    @property
    def cron_schedule(self) -> Schedule | None:
        """The schedule if it is by time; None if the pipeline is run by hand or by updates of an asset."""
        return self.schedule if self.schedule is not None and not self.schedule.asset else None

    @property
    def checkpoint_dag(self) -> str:
        """The id of the Airflow DAG whose runs apply the intervals: of the pipeline itself, or of its group."""
        return f"{self.group}.group" if self.group else f"{self.name}.checkpoint"

    @property
    def inputs(self) -> dict[str, Source]:
        """The sources by their field: ``source`` alone, or each ``sources.<name>`` in the order of the file."""
        only = {} if self.source is None else {"source": self.source}
        return only | {f"sources.{name}": source for name, source in self.sources.items()}

    @property
    def has_deletes(self) -> bool:
        """Whether events of a source can delete their key."""
        return any(source.delete_when is not None for source in self.inputs.values())

    @property
    def has_retractions(self) -> bool:
        """Whether events of a source can take back an earlier event."""
        return any(source.changes is not None for source in self.inputs.values())

    @property
    def has_changes(self) -> bool:
        """Whether events of a source can delete their key or take back an earlier event."""
        return self.has_deletes or self.has_retractions

    @property
    def retracted_columns(self) -> frozenset[str]:
        """The columns of the sources whose events can take back earlier events."""
        changing = (source for source in self.inputs.values() if source.changes is not None)
        return frozenset(name for source in changing for name in source.columns)

    def declared_columns(self) -> dict[str, str]:
        """Return the types of the columns as text: the columns of the first source in the order of the file, then those
        that only later sources have."""
        columns: dict[str, str] = {}
        for source in self.inputs.values():
            columns |= {name: text for name, text in source.types().items() if name not in columns}
        return columns

    def column_types(self) -> dict[str, StateType]:
        """Return the types of the columns, in the order of :meth:`declared_columns`."""
        return {name: type_of(text) for name, text in self.declared_columns().items()}

    def key_type(self) -> StateType:
        """Return the type of the key column, or a Tuple of the types of several key columns."""
        columns = self.column_types()
        types = tuple(columns[name] for name in self.key)
        return types[0] if len(types) == 1 else Tuple(types)

    def schema(self) -> KeyedStateSchema:  # type: ignore[override]  # pydantic's own is deprecated
        """Return the schema of the keyed state: key type, max parallelism, the states in order, then the timers and
        other states that belong to them."""
        columns = self.column_types()
        states = tuple(
            descriptor_of(name, state, columns, self.retracted_columns) for name, state in self._whole_states(columns)
        )
        beside = tuple(each for name, state in self.states.items() for each in states_beside(name, state))
        return KeyedStateSchema(self.key_type(), self.max_parallelism, states + beside)

    def operator_descriptors(self) -> tuple[OperatorStateDescriptor, ...]:
        """Return the descriptors of the operator states, in the order of the file."""
        return tuple(operator_descriptor_of(name, state) for name, state in self.operator_states.items())

    def ttl(self) -> dict[str, TtlConfig]:
        """Return the time to live of each state that expires, by name."""
        configs = {name: ttl_of(state) for name, state in self.states.items()}
        return {name: config for name, config in configs.items() if config is not None}

    def functions(self) -> tuple["StateFunction", ...]:
        """Return one function per state, in the order of the file. User functions are imported when first applied."""
        columns, drop = self.column_types(), self.on_null_key == "drop"
        states = self._whole_states(columns)
        return tuple(
            function_of(name, state, columns, self.key, drop, closed=self._closed(name)) for name, state in states
        )

    def _closed(self, state: str) -> tuple[str, ...]:
        """Return the outputs to which the closed sessions of a state are emitted."""
        return tuple(name for name, output in self.outputs.items() if output.closed == state)

    def _whole_states(self, columns: dict[str, StateType]) -> Iterator[tuple[str, StateDefinition]]:
        return ((name, with_whole_rows(state, columns, self.key)) for name, state in self.states.items())
