"""The parts of a pipeline file as pydantic models: which keys there are and what form their values have.

What the values mean together is checked in ``checks.py``.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from statelib.definition.problems import did_you_mean
from statelib.model.key_groups import MAX_MAX_PARALLELISM

UNKNOWN_KEYS = "statelib_unknown_keys"


def _one_or_many(value: object) -> object:
    return (value,) if isinstance(value, str) else value


def _in_utc(value: datetime) -> datetime:
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


Names = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]
"""A list of names; a single one may stand without brackets."""
Moment = Annotated[datetime, AfterValidator(_in_utc)]
"""A date or a time; UTC unless it says otherwise."""
Count = Annotated[int, Field(strict=True, ge=1)]
Parallelism = Annotated[int, Field(strict=True, ge=1, le=MAX_MAX_PARALLELISM)]
Amount = Annotated[int, Field(strict=True, ge=0)]
Switch = Annotated[bool, Field(strict=True)]


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


class Source(Part):
    """Where events come from. ``path``: str.format with ``data`` (the deployment's root of data) and
    ``start``, ``end`` (datetimes, UTC, of the data interval). ``columns``: name to type."""

    format: str = "parquet"
    path: str
    columns: Annotated[dict[str, str], Field(min_length=1)]

    def location(self, data: str, start: datetime, end: datetime) -> str:
        """The path of one data interval."""
        return self.path.format(data=data, start=start, end=end)


class FieldDefinition(Part):
    """What a state, or one field of it, holds: an aggregate (``agg``), or just a ``type`` where a
    user function computes it. A field of text is short for its type."""

    agg: str | None = None
    of: str | None = None
    by: Names = ()
    bounds: tuple[Annotated[float, Field(allow_inf_nan=False)], ...] = ()
    type: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        return {"type": data} if isinstance(data, str) else data


class StateDefinition(Part):
    """One state: of ``fields`` (a Row) or of one bare ``value``; ``user_key``: column of a map's keys."""

    kind: Literal["value", "list", "map", "reducing", "aggregating"]
    fields: dict[str, FieldDefinition] = {}
    value: FieldDefinition | None = None
    user_key: str | None = None
    function: str | None = None


class Retain(Part):
    """What retention keeps of the state's history: the newest ``count`` checkpoints, and besides all of
    the last ``days`` before the newest one. Savepoints are the user's and do not count."""

    count: Count = 20
    days: Count | None = None


class Checkpoint(Part):
    """``strategy``: '' stands for the backend's own, and is replaced when the pipeline is built.
    ``inline_threshold_bytes``: a stream up to this size lives inside ``_metadata`` instead of a file."""

    strategy: str = ""
    inline_threshold_bytes: Annotated[int, Field(ge=0, le=1 << 20, strict=True)] = 20 * 1024
    retain: Retain = Retain()


class Retries(Part):
    """How often Airflow tries a task again, and how long it waits before."""

    count: Amount = 2
    delay_s: Amount = 10
