"""The part of a pipeline file that publishes a state as a table, as a pydantic model."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from statelib.definition.parts.model import Count, Part


def _by_own_name(value: object) -> object:
    """Return a mapping from each name of a list to itself; anything else unchanged. An empty list is refused, because
    without ``columns`` all of them are published."""
    if isinstance(value, list | tuple) and not value:
        raise PydanticCustomError("columns", "one column or more, or no 'columns' for all of them")
    if isinstance(value, str):
        return {value: value}
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return value
    return {name: name for name in value}


Columns = Annotated[
    dict[str, str], BeforeValidator(_by_own_name, json_schema_input_type=str | tuple[str, ...] | dict[str, str])
]
"""Columns of the state's flat table by the name that they are published under. A list publishes them under their own
names."""


class Publication(Part):
    """A table that every registered checkpoint publishes one ``state``, or the rows of one ``output``, to. ``mode``: a
    feed with one commit of the ``changes`` per checkpoint, or the state itself as a ``table``. ``target``: the
    directory of the table, a template with ``data``; for Iceberg the catalog, the namespace and the name. ``state`` and
    ``output`` None: the only state of the pipeline. ``columns`` empty: all columns, and of an aggregate its result
    only. ``retain``: the number of commits of a ``table`` that stay readable."""

    target: str
    mode: Literal["changes", "table"]
    format: Literal["parquet", "delta", "iceberg"] = "parquet"
    state: str | None = None
    output: str | None = None
    columns: Columns = Field(default={})
    retain: Count = 10

    @property
    def takes_changes(self) -> bool:
        """Return whether a commit is made from the changes of a state since the commit before it. A table in Parquet or
        Iceberg is made from files of the state."""
        return self.output is None and (self.mode == "changes" or self.format == "delta")
