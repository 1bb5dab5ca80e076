"""The parts of a pipeline file as pydantic models: which keys there are and what form their values have.

What the values mean together is checked in ``checks.py``.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from statelib.definition.durations import milliseconds
from statelib.definition.problems import did_you_mean
from statelib.definition.source_templates import at_interval
from statelib.functions.aggregates import Nulls
from statelib.model.checkpoint import DataInterval
from statelib.model.key_groups import MAX_MAX_PARALLELISM
from statelib.model.termination import CheckpointRetentionPolicy

UNKNOWN_KEYS = "statelib_unknown_keys"


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _in_utc(value: datetime) -> datetime:
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError as error:
        raise PydanticCustomError("moment", "a time within the years 1 to 9999, in UTC") from error


Names = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]
"""A list of names; a single one may stand without brackets."""
Moment = Annotated[datetime, AfterValidator(_in_utc)]
"""A date or a time; UTC unless it says otherwise."""
Count = Annotated[int, Field(strict=True, ge=1)]
Parallelism = Annotated[int, Field(strict=True, ge=1, le=MAX_MAX_PARALLELISM)]
Amount = Annotated[int, Field(strict=True, ge=0)]
Seconds = Annotated[int, Field(strict=True, ge=0, le=31_622_400)]
"""A year at most."""
Switch = Annotated[bool, Field(strict=True)]


def _as_duration(text: str) -> str:
    try:
        milliseconds(text)
    except ValueError as error:
        raise PydanticCustomError("duration", "{text}", {"text": str(error)}) from error
    return text


Duration = Annotated[str, AfterValidator(_as_duration)]


class Part(BaseModel):
    """Frozen; refuses keys it does not know and says which one was probably meant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        known = list(cls.model_fields)
        unknown = [(str(key), did_you_mean(str(key), known)) for key in data if key not in known]
        if unknown:
            texts = [(key, f"unknown key{meant or ', known are ' + ', '.join(known)}") for key, meant in unknown]
            summary = "; ".join(f"{key}: {text}" for key, text in texts)
            raise PydanticCustomError(UNKNOWN_KEYS, "{summary}", {"summary": summary, "texts": texts})
        return data

    def __hash__(self) -> int:
        """Some parts hold dicts: their text is what is hashed."""
        return hash((type(self), self.model_dump_json()))


class Schedule(Part):
    """When Airflow runs the pipeline. ``cron`` is Airflow's to judge; ``start`` and ``end`` bound the
    data intervals, ``catchup`` makes up for those between ``start`` and today."""

    cron: str
    start: Moment
    end: Moment | None = None
    catchup: Switch = False


class Ready(Part):
    """How it is seen that the events of an interval are complete: all that is given has to hold. ``marker``: a file in
    the interval's directory, or a path of its own; a template as ``path``. ``min_age``: how long nothing has changed.
    ``next_interval``: the path of the interval after it exists. ``asset``: the URI of one of Airflow's, updated after
    the interval's end. The DAG looks each ``poke_interval``, for ``timeout``."""

    marker: str | None = None
    min_age: Duration | None = None
    next_interval: Switch = False
    asset: str | None = None
    poke_interval: Duration = "60s"
    timeout: Duration = "7d"


class Source(Part):
    """Where events come from. ``path``: str.format with ``data`` (the deployment's root of data) and
    ``start``, ``end`` (datetimes, UTC, of the data interval). ``columns``: name to type. ``on_missing``: whether a path
    that is not there, or has no files, is an interval without events. ``ready`` None: whatever is there is complete."""

    format: str = "parquet"
    path: str
    columns: Annotated[dict[str, str], Field(min_length=1)]
    on_missing: Literal["fail", "empty"] = "fail"
    ready: Ready | None = None

    @property
    def may_be_empty(self) -> bool:
        """Whether a directory without files is an interval without events: the file says so, or a marker does."""
        return self.on_missing == "empty" or (self.ready is not None and self.ready.marker is not None)

    def location(self, data: str, interval: DataInterval) -> str:
        """The path of one interval of the schedule; :func:`statelib.definition.source.parts.source_parts` says
        which paths a data interval has."""
        return at_interval(self.path, data, interval)


class FieldDefinition(Part):
    """What a state, or one field of it, holds: an aggregate (``agg``), or just a ``type`` where a
    user function computes it. A field of text is short for its type. ``of`` with several columns: ``first`` or
    ``last`` takes all of them from one event. ``nulls``: whether ``first`` and ``last`` keep a null as a value.
    ``renamed_from``: what the field was called in older checkpoints."""

    agg: str | None = None
    of: str | tuple[str, ...] | None = None
    by: Names = ()
    nulls: Nulls | None = None
    bounds: tuple[Annotated[float, Field(allow_inf_nan=False)], ...] = ()
    type: str | None = None
    renamed_from: Names = ()

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        return {"type": data} if isinstance(data, str) else data

    @property
    def together(self) -> tuple[str, ...]:
        """The columns that are taken from one event; none where ``of`` is one column."""
        return self.of if isinstance(self.of, tuple) else ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns of ``of``."""
        return (self.of,) if isinstance(self.of, str) else self.together


class Sliding(Part):
    """Windows of ``size``, a new one every ``slide``."""

    size: Duration
    slide: Duration


class Window(Part):
    """Windows of event time that a state is kept by besides its key: ``tumbling`` ones of a size, or ``sliding``
    ones. ``time``: the column that says when an event was. After a window's end it takes events until the
    watermark is ``allowed_lateness`` past it, and can be read for another ``retain``; then it is cleared."""

    time: str
    tumbling: Duration | None = None
    sliding: Sliding | None = None
    session: object = None
    allowed_lateness: Duration = "0s"
    retain: Duration


class StateDefinition(Part):
    """One state: of ``fields`` (a Row) or of one bare ``value``; ``user_key``: column of a map's keys.
    ``on_timer``: what is called for the timers that ``function`` sets. ``ttl``: how long it lives after its
    last access, such as 30d; ``update``: what is an access. ``renamed_from``: what the state was called in older
    checkpoints."""

    kind: Literal["value", "list", "map", "reducing", "aggregating"]
    fields: dict[str, FieldDefinition] = {}
    value: FieldDefinition | None = None
    user_key: str | None = None
    function: str | None = None
    on_timer: str | None = None
    window: Window | None = None
    ttl: Duration | None = None
    update: Literal["on_create_and_write", "on_read_and_write"] | None = None
    renamed_from: Names = ()


class OperatorStateDefinition(Part):
    """State of a subtask: a list (each element goes to one subtask after rescaling), a union (all elements
    to all) of ``element``, or a broadcast map from ``key`` to ``value``, the same in every subtask."""

    mode: Literal["list", "union", "broadcast"]
    element: str | None = None
    key: str | None = None
    value: str | None = None


class Hooks(Part):
    """Functions that are called in every subtask, with or without events: ``initialize_state`` after its state was
    restored, ``snapshot_state`` before its snapshot is taken."""

    initialize_state: str | None = None
    snapshot_state: str | None = None


class Retain(Part):
    """What retention keeps of the state's history: the newest ``count`` checkpoints, and besides all of
    the last ``days`` before the newest but one. Savepoints are the user's and do not count.
    ``after_termination``: what becomes of the rest when the pipeline is finished, failed or cancelled;
    None keeps it, as long as it is not said otherwise."""

    count: Count = 20
    days: Count | None = None
    after_termination: CheckpointRetentionPolicy | None = None


class FileMerging(Part):
    """Whether the small files of a subtask's checkpoint are put into few. ``max_file_size_bytes``: of such a
    file. ``max_space_amplification``: how many times larger than what of it is still needed it may be."""

    enabled: Annotated[bool, Field(strict=True)] = False
    max_file_size_bytes: Annotated[int, Field(ge=1 << 10, le=1 << 40, strict=True)] = 32 << 20
    max_space_amplification: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.0


class Checkpoint(Part):
    """``strategy``: '' stands for the backend's own, and is replaced when the pipeline is built.
    ``inline_threshold_bytes``: a stream up to this size lives inside ``_metadata`` instead of a file.
    ``materialize_after_bytes``, ``materialize_after_checkpoints``: of strategy ``changelog``; a subtask's log that
    would be larger, or written by more checkpoints, ends, and the state is written whole. Whoever writes or restores
    a log holds it in memory, about five times. ``local_recovery``: each host keeps copies of what it wrote, and
    restores from them first.
    ``timeout_s``: how long one attempt at a checkpoint may take, its Spark job included.
    ``tolerable_failures``: so many checkpoints may fail in a row before no more are begun; None: any number.
    ``execution``: whether writing a snapshot counts as its synchronous part."""

    strategy: str = ""
    inline_threshold_bytes: Annotated[int, Field(ge=0, le=1 << 20, strict=True)] = 20 * 1024
    materialize_after_bytes: Annotated[int, Field(ge=1, le=1 << 30, strict=True)] = 16 * 1024 * 1024
    materialize_after_checkpoints: Count = 20
    retain: Retain = Retain()
    local_recovery: Switch = False
    file_merging: FileMerging = FileMerging()
    timeout_s: Annotated[Seconds, Field(ge=1)] = 21_600
    tolerable_failures: Amount | None = None
    execution: Literal["async", "sync"] = "async"


class Retries(Part):
    """How often Airflow tries a task again, and how long it waits before."""

    count: Amount = 2
    delay_s: Seconds = 10


class Notify(Part):
    """One of Airflow's notifiers: ``notifier`` is the dotted path of its class, ``arguments`` are its own. Their
    templates may use ``statelib``: the message, and its ``title``, ``pipeline``, ``checkpoint_id``, ``reason`` and
    ``hint``."""

    notifier: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")]
    arguments: dict[str, object] = {}


class Alerts(Part):
    """Who is told when a task of the pipeline fails for good, or when a run is not over so long after it was queued
    (``deadline``)."""

    notify: tuple[Notify, ...] = ()
    deadline: Duration | None = None
