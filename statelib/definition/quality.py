"""``checks:`` of a pipeline file: what the gate judges besides completeness, and what follows from it."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from statelib.definition.model import Count, Part
from statelib.model.quality import Severity

Level = Literal["warn", "quarantine", "fail"]
"""What follows where a check does not hold: warn, keep aside, abort."""


def _as_share(value: object) -> object:
    if not isinstance(value, str):
        return value
    digits = value.removesuffix("%").strip()
    try:
        return float(digits) / 100 if value.endswith("%") else float(digits)
    except ValueError as error:
        text = "a share such as 20% or 0.2"
        raise PydanticCustomError("share", "{text}", {"text": text}) from error


Share = Annotated[float, BeforeValidator(_as_share), Field(ge=0, allow_inf_nan=False, strict=True)]
"""``20%`` or ``0.2``; more than the whole is possible, where something may grow by it."""


class Judged(Part):
    """A check of any kind has a severity."""

    severity: Level = "warn"

    @property
    def level(self) -> Severity:
        return Severity(self.severity.upper())


class Change(Judged):
    """``most``: how far from what was expected it may be, as a share of that."""

    most: Share


class RateChange(Judged):
    """``most``: how far from the rate of the checkpoint before it may be: 0.05 is five of a hundred rows."""

    most: Annotated[Share, Field(le=1)]


class Shift(Judged):
    """``psi``: the largest population stability index against the checkpoint before; below 0.1 is the same
    distribution for most purposes, above 0.25 another one."""

    psi: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.2


class Drift(Part):
    """Against the checkpoints that this one was built on. ``entries`` (of each state) and ``size_bytes`` (of the
    whole) against how they went on through the last ``history`` ones; ``null_rate`` and ``distribution``, by
    ``<state>.<column>``, against the one before."""

    entries: Change | None = None
    size_bytes: Change | None = None
    null_rate: dict[str, RateChange] = Field(default={})
    distribution: dict[str, Shift] = Field(default={})
    history: Annotated[int, Field(ge=2, le=100, strict=True)] = 7


class Expectation(Judged):
    """One of Great Expectations' own: ``expect`` is its name without ``expect_``, beside it stand its parameters."""

    model_config = ConfigDict(frozen=True, extra="allow")

    severity: Level = "fail"
    state: str
    expect: str

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: object) -> object:
        """Which keys there may be is up to the expectation: ``quality_checks.py`` knows."""
        return data

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def describe(self) -> str:
        """``column_values_to_be_between(column=flights, min_value=0)``."""
        said = ", ".join(f"{name}={value}" for name, value in self.parameters.items())
        return f"{self.expect}({said})"


class Checks(Part):
    """What the gate judges besides completeness, which it always proves. ``rehearse_every``: each so many checkpoints
    it is restored into live state on trial. ``sample_rows``: of a larger state, whole key groups up to about so
    many entries are read for expectations and drift, the same in each checkpoint."""

    drift: Drift = Drift()
    expectations: tuple[Expectation, ...] = ()
    rehearse_every: Count | None = None
    sample_rows: Annotated[int, Field(ge=1_000, le=10_000_000, strict=True)] = 100_000
