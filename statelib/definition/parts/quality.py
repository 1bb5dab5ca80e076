"""The section ``checks:`` of a pipeline file: the gate's checks besides completeness, and their severities."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from statelib.definition.parts.model import Count, Part
from statelib.model.quality import Severity

Level = Literal["warn", "quarantine", "fail"]
"""The result of a failed check: a warning, quarantine, or the abort of the checkpoint."""


def _as_share(value: object) -> object:
    if not isinstance(value, str):
        return value
    digits = value.removesuffix("%").strip()
    try:
        return float(digits) / 100 if value.endswith("%") else float(digits)
    except ValueError as error:
        text = "a share such as 20% or 0.2"
        raise PydanticCustomError("share", "{text}", {"text": text}) from error


Share = Annotated[
    float, BeforeValidator(_as_share, json_schema_input_type=float | str), Field(ge=0, allow_inf_nan=False, strict=True)
]
"""A share, as ``20%`` or ``0.2``. It may be more than 1, because sizes may more than double."""


class Judged(Part):
    """A check with a severity."""

    severity: Level = "warn"

    @property
    def level(self) -> Severity:
        """The severity of the check."""
        return Severity(self.severity.upper())


class DriftLimit(Judged):
    """A limit of drift. ``most``: the largest difference from the expected number, as a share of that number."""

    most: Share


class RateChange(Judged):
    """A limit of the drift of a rate. ``most``: the largest difference from the rate in the base checkpoint. 0.05 means
    5 of 100 rows."""

    most: Annotated[Share, Field(le=1)]


class Shift(Judged):
    """A limit of the drift of a distribution. ``psi``: the largest population stability index against the base
    checkpoint. Below 0.1 the distributions count as equal for most purposes, above 0.25 as different."""

    psi: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.2


class Drift(Part):
    """Limits of the drift against the checkpoints that this one was built on. ``entries`` (per state) and
    ``size_bytes`` (of the whole checkpoint) are compared with the trend of the last ``history`` checkpoints;
    ``null_rate`` and ``distribution``, by ``<state>.<column>``, with the base checkpoint."""

    entries: DriftLimit | None = None
    size_bytes: DriftLimit | None = None
    null_rate: dict[str, RateChange] = Field(default={})
    distribution: dict[str, Shift] = Field(default={})
    history: Annotated[int, Field(ge=2, le=100, strict=True)] = 7


class Expectation(Judged):
    """An expectation of Great Expectations. ``expect``: its name without ``expect_``. The other keys are its
    parameters."""

    model_config = ConfigDict(frozen=True, extra="allow")

    severity: Level = "fail"
    state: str
    expect: str

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: object) -> object:
        """Allow any key: ``checks/quality.py`` checks the parameters of each expectation."""
        return data

    @property
    def parameters(self) -> dict[str, Any]:
        """The expectation's parameters by name."""
        return dict(self.model_extra or {})

    def describe(self) -> str:
        """Return the expectation as text, such as ``column_values_to_be_between(column=flights, min_value=0)``."""
        parameters = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.expect}({parameters})"


def _turns(value: object) -> object:
    if not isinstance(value, str):
        return value
    numerator, _, turns = value.partition("/")
    if numerator.strip() != "1" or not turns.strip().isdecimal():
        text = "a share such as 1/20"
        raise PydanticCustomError("share", "{text}", {"text": text})
    return int(turns)


Turns = Annotated[
    int,
    BeforeValidator(_turns),
    Field(ge=2, le=1000, strict=True, json_schema_extra={"default": "1/20"}),
    PlainSerializer(lambda turns: f"1/{turns}", when_used="json"),
    WithJsonSchema({"type": "string", "pattern": "^ *1 */ *[0-9]+ *$"}),
]
"""A number of turns, of which each reads an equal part. A file has the part, such as ``1/20``."""


class Rotation(Part):
    """The part of the known files and key groups that the gate reads again in each run. ``rotate``: one over the number
    of runs after which all files have been read again. ``entries``: the mean number of known entries that one
    run decodes, if that is less than the part. A run that applied more events decodes as many entries as events."""

    rotate: Turns = 20
    entries: Annotated[int, Field(ge=1, strict=True)] = 50_000


class Checks(Part):
    """The gate's checks besides completeness, which it always checks. ``read_back``: what the gate reads besides what
    is new: ``all``, or a part of what earlier checkpoints have proved. ``in_job_from_bytes``: the stored bytes from
    which tasks of the Spark job read them back, or restore them as a test. ``rehearse_every``: every Nth checkpoint is
    restored into live state as a test. ``sample_rows``: for expectations and drift of a state with more entries, the
    gate reads only whole key groups with about this number of entries, the same key groups in each checkpoint."""

    read_back: Literal["all"] | Rotation = Rotation()
    in_job_from_bytes: Annotated[int, Field(ge=0, strict=True)] = 256 << 20
    drift: Drift = Drift()
    expectations: tuple[Expectation, ...] = ()
    rehearse_every: Count | None = None
    sample_rows: Annotated[int, Field(ge=1_000, le=10_000_000, strict=True)] = 100_000
