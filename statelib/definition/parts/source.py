"""The source of a pipeline file as pydantic models: where the events of an interval are, and their columns."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from statelib.definition.parts.model import SHORT_FORM, Duration, Part, Switch

DATA_FORMATS = ("parquet", "orc", "json", "csv", "text", "avro", "xml")
"""The formats of which every file below a path has events. The directory of a table has other files, too."""


class Ready(Part):
    """The conditions for the events of an interval to be complete. All given conditions must hold. ``marker``: a file
    in the interval's directory, or a path of its own, exists; it is a template like ``path``. ``min_age``: no file has
    changed for this long. ``next_interval``: the path of the next interval exists. ``asset``: this Airflow asset (a
    URI) was updated after the interval's end. The DAG checks every ``poke_interval``, and fails after ``timeout``."""

    marker: str | None = None
    min_age: Duration | None = None
    next_interval: Switch = False
    asset: str | None = None
    poke_interval: Duration = "60s"
    timeout: Duration = "7d"


class SourceColumn(Part):
    """A column of the events. ``expr``: the SQL expression that computes it from the source's own columns; None: it is
    the source's column of the same name. A text instead of a mapping is short for ``type``."""

    model_config = ConfigDict(json_schema_extra={SHORT_FORM: "type"})

    type: str
    expr: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        return {"type": data} if isinstance(data, str) else data


class ChangeLogColumns(Part):
    """The changes of a log. ``op``: an SQL expression for the operation, such as the column ``op``. ``before``,
    ``after``: expressions for the rows before and after it, if each event is an envelope with both; None if each event
    is one row. A text instead of a mapping is short for ``op``."""

    model_config = ConfigDict(json_schema_extra={SHORT_FORM: "op"})

    op: str
    before: str | None = None
    after: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, data: object) -> object:
        return {"op": data} if isinstance(data, str) else data


def _as_text(value: object) -> object:
    """Return the text of a number or a boolean, in which Spark takes the value of an option."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Option = Annotated[str, BeforeValidator(_as_text, json_schema_input_type=str | int | float | bool)]


class Source(Part):
    """The source of the events: the files under ``path`` in a ``format``, a ``table`` of Spark's catalog, or what a
    format reads by its ``options`` alone, such as a JDBC query. ``file_schema``: the columns of the files and their
    types, as Spark writes them, for files that may lack some of them; None: Spark finds them in the files.
    ``incremental``: the path is a table, and a run reads the commits since those that the state has. ``each``: each
    element of a list is an event: expressions in SQL for lists, by the name of the column that has the element; a later
    one may use the names before it. ``where``: a condition in SQL on the source's own columns. ``delete_when``: such a
    condition, which holds for the events that delete their key. ``changes``: the events are the changes of a log.
    ``path``, ``table``, ``where`` and the options are templates for str.format with ``data`` (the deployment's root of
    data) and ``start``, ``end`` (datetimes of the data interval, in the schedule's zone); options also with
    ``env[NAME]``, a variable of the Spark driver's environment. ``time_zone``: the zone of the source's times without a
    zone, such as Europe/Berlin. ``on_missing``: whether a path that does not exist, or has no files, is an error or an
    interval without events. ``ready`` None: the events are complete whenever a run reads them."""

    format: str | None = None
    path: str | None = None
    table: str | None = None
    options: dict[str, Option] = Field(default={})
    file_schema: str | None = None
    incremental: Switch = False
    each: dict[str, str] = Field(default={})
    where: str | None = None
    delete_when: str | None = None
    changes: ChangeLogColumns | None = None
    time_zone: str | None = None
    columns: Annotated[dict[str, SourceColumn], Field(min_length=1)]
    on_missing: Literal["fail", "empty"] = "fail"
    ready: Ready | None = None

    @property
    def file_format(self) -> str:
        """The format in which Spark reads the source, if it is not a table."""
        return self.format or "parquet"

    @property
    def has_no_types(self) -> bool:
        """Whether Spark finds columns and types in the values of an interval, so that they may differ between days."""
        return self.table is None and self.file_schema is None and self.file_format.lower() in ("json", "xml")

    @property
    def may_be_empty(self) -> bool:
        """Whether a directory without files is an interval without events, by ``on_missing`` or because of a marker."""
        return self.on_missing == "empty" or (self.ready is not None and self.ready.marker is not None)

    @property
    def templates(self) -> dict[tuple[str, ...], str]:
        """The templates by their field: those that are given of ``path``, ``table`` and ``where``, and the options."""
        named = {(name,): getattr(self, name) for name in ("path", "table", "where")}
        options = {("options", name): text for name, text in self.options.items()}
        return {field: text for field, text in (named | options).items() if text is not None}

    def types(self) -> dict[str, str]:
        """Return the declared types of the columns, in the order of the file."""
        return {name: column.type for name, column in self.columns.items()}
