"""The parts of a pipeline file as pydantic models: the allowed keys, and the form of their values.

``checks`` checks whether the values fit together.
"""

import re
from datetime import UTC, datetime, tzinfo
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from statelib.aggregates.kinds import Nulls
from statelib.definition.parts.durations import milliseconds
from statelib.definition.parts.zones import in_zone, zone_of
from statelib.definition.problems import did_you_mean
from statelib.model.key_groups import MAX_MAX_PARALLELISM
from statelib.model.moments import moment_of
from statelib.model.termination import CheckpointRetentionPolicy

UNKNOWN_KEYS = "statelib_unknown_keys"
SHORT_FORM = "x-short-form"
"""The entry in a part's JSON schema that names the key which a text instead of the part stands for."""


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _in_utc(value: datetime, info: ValidationInfo) -> datetime:
    try:
        return in_zone(value, zone_of(info.data.get("time_zone")))
    except OverflowError as error:
        raise PydanticCustomError("moment", "a time within the years 1 to 9999, in UTC") from error


def _as_date_or_time(value: object) -> object:
    """Return the value unchanged. A number would be taken for the seconds since 1970, also as text: 20130101 is a day
    in August 1970."""
    if isinstance(value, int | float) or (isinstance(value, str) and re.fullmatch(r"\s*[-+]?[\d.]+\s*", value)):
        raise PydanticCustomError("moment", "a date or a time such as 2026-01-31 or 2026-01-31T06:00")
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_one_or_many, json_schema_input_type=str | tuple[str, ...])]
"""A list of names. A single name needs no brackets."""
Moment = Annotated[
    datetime, BeforeValidator(_as_date_or_time, json_schema_input_type=datetime), AfterValidator(_in_utc)
]
"""A date or a time, as a datetime in UTC. Without an offset it is in the time zone of its part, or in UTC."""
Count = Annotated[int, Field(strict=True, ge=1)]
Parallelism = Annotated[int, Field(strict=True, ge=1, le=MAX_MAX_PARALLELISM)]
Amount = Annotated[int, Field(strict=True, ge=0)]
Seconds = Annotated[int, Field(strict=True, ge=0, le=31_622_400)]
"""At most 366 days."""
Switch = Annotated[bool, Field(strict=True)]


def _as_duration(text: str) -> str:
    try:
        milliseconds(text)
    except ValueError as error:
        raise PydanticCustomError("duration", "{text}", {"text": str(error)}) from error
    return text


Duration = Annotated[str, AfterValidator(_as_duration)]


class Part(BaseModel):
    """A frozen part of a pipeline file. It refuses unknown keys, and suggests a similar allowed key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        allowed = list(cls.model_fields)
        unknown = [(str(key), did_you_mean(str(key), allowed)) for key in data if key not in allowed]
        if unknown:
            texts = [(key, f"unknown key{meant or ', known are ' + ', '.join(allowed)}") for key, meant in unknown]
            summary = "; ".join(f"{key}: {text}" for key, text in texts)
            raise PydanticCustomError(UNKNOWN_KEYS, "{summary}", {"summary": summary, "texts": texts})
        return data

    def __hash__(self) -> int:
        """Return the hash of the part's JSON text, because some parts hold dicts, which have no hash."""
        return hash((type(self), self.model_dump_json()))


class Schedule(Part):
    """The schedule by which Airflow runs the pipeline. ``cron``: a cron expression or one of Airflow's presets; or
    ``asset``: the URI of an Airflow asset, whose updates start the runs. ``time_zone``: the zone of ``cron``, and
    of the times of the pipeline without an offset; None: UTC. ``start`` and ``end`` bound the data intervals.
    ``catchup``: Airflow also runs the intervals between ``start`` and today."""

    cron: str = ""
    asset: str = ""
    time_zone: str | None = None
    start: Moment
    end: Moment | None = None
    catchup: Switch = False

    @property
    def zone(self) -> tzinfo:
        """The time zone of the schedule."""
        return zone_of(self.time_zone)

    @property
    def text(self) -> str:
        """The cron expression, with its zone if it has one, or the asset, as people see them."""
        if self.asset:
            return f"asset {self.asset}"
        return self.cron if self.time_zone is None else f"{self.cron} in {self.time_zone}"

    def local_text(self, moment_ms: int) -> str:
        """Return a moment as a text that :func:`~statelib.definition.source.intervals.moment` reads in this schedule's
        zone. It has its offset unless the zone is UTC."""
        local = moment_of(moment_ms).astimezone(self.zone)
        return (local.replace(tzinfo=None) if self.zone is UTC else local).isoformat(timespec="seconds")


class FieldDefinition(Part):
    """The content of a state or of one of its fields: an aggregate (``agg``), or only a ``type`` if a
    user function computes it. A text instead of a mapping is short for ``type``. ``of`` with several columns: ``first``
    or ``last`` takes all of them from one event. ``nulls``: whether ``first`` and ``last`` keep a null as a value.
    ``n``: the number of events that ``top`` and ``bottom`` store. ``limit``: the most values that ``collect`` and
    ``distinct`` store, None for all. ``half_life``: the time in which ``decay`` halves a value. ``where``: the boolean
    column of the events that count, '' if all events do. ``renamed_from``: names of the field in older checkpoints."""

    model_config = ConfigDict(json_schema_extra={SHORT_FORM: "type"})

    agg: str | None = None
    of: str | tuple[str, ...] | None = None
    by: Names = ()
    nulls: Nulls | None = None
    bounds: tuple[Annotated[float, Field(allow_inf_nan=False)], ...] = ()
    n: Count | None = None
    limit: Count | None = None
    half_life: Duration | None = None
    where: str = ""
    type: str | None = None
    renamed_from: Names = ()

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        return {"type": data} if isinstance(data, str) else data

    @property
    def together(self) -> tuple[str, ...]:
        """The columns that are taken from one event, () if ``of`` is a single column."""
        return self.of if isinstance(self.of, tuple) else ()

    @property
    def numbers(self) -> tuple[float, ...]:
        """The bounds of a histogram, or the one number of another aggregate; a half-life is in milliseconds."""
        half_life_ms = None if self.half_life is None else milliseconds(self.half_life)
        given = [number for number in (self.n, self.limit, half_life_ms) if number is not None]
        return self.bounds or tuple(map(float, given))

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of ``of``."""
        return (self.of,) if isinstance(self.of, str) else self.together


class Sliding(Part):
    """Windows of length ``size``. A new one begins every ``slide``."""

    size: Duration
    slide: Duration


class WindowSettings(Part):
    """Windows of event time: a state has one value per key and window. They are ``tumbling`` with a size, ``sliding``,
    or a ``session`` that ends when a key has had no event for so long. ``time``: the column with the time of an event.
    A window takes events until the watermark is ``allowed_lateness`` past its end, can be read for another ``retain``,
    and is then cleared."""

    time: str
    tumbling: Duration | None = None
    sliding: Sliding | None = None
    session: Duration | None = None
    allowed_lateness: Duration = "0s"
    retain: Duration


class StateDefinition(Part):
    """One state: a Row of ``fields``, or one bare ``value``. ``user_key``: the column of a map's keys.
    ``on_timer``: the function that is called for the timers that ``function`` sets. ``ttl``: how long an entry lives
    after its last access, such as 30d. ``update``: which operations are an access. ``renamed_from``: names of the state
    in older checkpoints."""

    kind: Literal["value", "list", "map", "reducing", "aggregating"]
    fields: dict[str, FieldDefinition] = {}
    value: FieldDefinition | None = None
    user_key: str | None = None
    function: str | None = None
    on_timer: str | None = None
    window: WindowSettings | None = None
    ttl: Duration | None = None
    update: Literal["on_create_and_write", "on_read_and_write"] | None = None
    renamed_from: Names = ()


class OperatorStateDefinition(Part):
    """State of a subtask instead of a key. ``list``: elements of type ``element``, each of which goes to one subtask
    after rescaling. ``union``: after rescaling every subtask gets all elements. ``broadcast``: a map from ``key`` to
    ``value`` that is equal in every subtask."""

    mode: Literal["list", "union", "broadcast"]
    element: str | None = None
    key: str | None = None
    value: str | None = None


class OutputDefinition(Part):
    """Rows that are emitted beside the state: by user functions, with the types of their ``columns`` as text, by name;
    or the ``closed`` sessions of a state."""

    columns: dict[str, str] = {}
    closed: str | None = None


class Hooks(Part):
    """Functions that are called in every subtask, with or without events: ``initialize_state`` after its state was
    restored, ``snapshot_state`` before its snapshot is taken."""

    initialize_state: str | None = None
    snapshot_state: str | None = None


class Retain(Part):
    """The checkpoints that retention keeps: the newest ``count`` ones, and also all of
    the last ``days`` before the second newest one. Savepoints belong to users and do not count.
    ``after_termination``: whether retention deletes the rest when the pipeline is finished, failed or cancelled;
    None keeps it."""

    count: Count = 20
    days: Count | None = None
    after_termination: CheckpointRetentionPolicy | None = None


class FileMerging(Part):
    """Merging of a subtask's small files into few larger files. ``max_file_size_bytes``: the largest merged file.
    ``max_space_amplification``: the largest quotient of a merged file's size and the bytes in it that are needed."""

    enabled: Annotated[bool, Field(strict=True)] = False
    max_file_size_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 40, strict=True)] = 32 << 20
    max_space_amplification: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0


class CheckpointSettings(Part):
    """The settings of writing and keeping checkpoints. ``strategy``: '' means the backend's default, which replaces it.
    ``inline_threshold_bytes``: a stream up to this size is part of ``_metadata`` instead of a file.
    ``materialize_after_bytes``, ``materialize_after_checkpoints``: limits of strategy ``changelog``. Before a subtask's
    log becomes larger, or older than this number of checkpoints, the whole state is written and a new log begins.
    Writing or restoring a log needs about five times its size of memory. ``blind``: a run does not read the state, but
    adds the accumulators of its events to the log. ``reads``: whether a run reads the state as a whole, or only the
    entries that its events touch; ``auto``: what costs less. ``mendable``: the time for which checkpoints keep what
    each interval did to the state, so that it can be mended; None: they keep nothing. ``local_recovery``: each host
    keeps copies of the files that it wrote, and restores from them first.
    ``timeout_s``: how long one attempt at a checkpoint may take, including its Spark job.
    ``tolerable_failures``: how many checkpoints may fail in a row before no more begin; None: any number.
    ``execution``: whether the time to write a snapshot counts as its synchronous or asynchronous part."""

    strategy: str = ""
    inline_threshold_bytes: Annotated[int, Field(ge=0, le=1 << 20, strict=True)] = 20 * 1024
    materialize_after_bytes: Annotated[int, Field(ge=1, le=1 << 30, strict=True)] = 16 * 1024 * 1024
    materialize_after_checkpoints: Count = 20
    blind: Switch = False
    mendable: Duration | None = None
    reads: Literal["auto", "whole", "touched"] = "auto"
    retain: Retain = Retain()
    local_recovery: Switch = False
    file_merging: FileMerging = FileMerging()
    timeout_s: Annotated[Seconds, Field(ge=1)] = 21_600
    tolerable_failures: Amount | None = None
    execution: Literal["async", "sync"] = "async"


class TaskRetries(Part):
    """Retries of a failed task by Airflow: their number, and the delay before each, in seconds."""

    count: Amount = 2
    delay_s: Seconds = 10


class Notify(Part):
    """One of Airflow's notifiers: the dotted path of its class, and the ``arguments`` of the class. Templates in the
    arguments may use ``statelib``: the message, and its ``title``, ``pipeline``, ``checkpoint_id``, ``reason`` and
    ``hint``."""

    notifier: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")]
    arguments: dict[str, object] = {}


class Alerts(Part):
    """Notifications when a task of the pipeline fails after its last retry, or when a run has not finished ``deadline``
    after it was queued."""

    notify: tuple[Notify, ...] = ()
    deadline: Duration | None = None
