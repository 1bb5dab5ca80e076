"""The events of a pipeline as Arrow columns: their schema, and the key of each row."""

import pyarrow as pa
import pyarrow.compute as pc

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.functions.change_logs.changes import CHANGE
from statelib.model.amounts import number_of
from statelib.serializers.registry import codec_of


def event_schema(pipeline: Pipeline) -> pa.Schema:
    """Return the Arrow schema of the declared columns, in the order of the file, and of the column
    :data:`~statelib.functions.change_logs.changes.CHANGE` if a source has deletes or retractions. Every column may have
    nulls."""
    declared = [(name, codec_of(type_).arrow_type) for name, type_ in pipeline.column_types().items()]
    return pa.schema([*declared, *([(CHANGE, pa.int8())] if pipeline.has_changes else [])])


def as_declared(values: pa.Array, field: pa.Field) -> pa.Array:
    """Return a column of a source in its declared type. Values of the source's type fit, except distant times.

    Raises UnsupportedError (``time-out-of-range``)."""
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:
        value = _distant_time(values) or error
        raise UnsupportedError(
            f"column {field.name}: expected times from 1677-09-21 to 2262-04-11, found {value}",
            kind="time-out-of-range",
            hint="leave such events out with 'where', or compute the column, for example with "
            f"expr: \"IF({field.name} < '2200-01-01', {field.name}, NULL)\"",
        ) from error


def _distant_time(values: pa.Array) -> str:
    """Return the time that is the farthest from 1970 as text; '' if a column has no times."""
    if not pa.types.is_timestamp(values.type):
        return ""
    ends = pc.min_max(values)
    farthest = max((ends[end] for end in ("min", "max")), key=lambda time: abs(time.value))
    return str(pc.cast(farthest, pa.string()))


def key_array(pipeline: Pipeline, table: pa.Table) -> pa.Array:
    """Return the key of each row: the key column, or a struct f0, f1, ... of several columns. No part may be null.

    Raises InvalidRequestError (kind ``null-key``), which names the column; :func:`keyed_events` removes
    such rows."""
    for name in pipeline.key:
        if table[name].null_count:
            raise _null_key(pipeline, name, table[name].null_count)
    columns = [table[name].combine_chunks() for name in pipeline.key]
    if len(columns) == 1:
        return columns[0]
    return pa.StructArray.from_arrays(columns, [f"f{i}" for i in range(len(columns))])


def keyed_events(pipeline: Pipeline, table: pa.Table) -> tuple[pa.Table, int]:
    """Return the events that have a key, and the number of those without one, which ``on_null_key: drop`` drops.

    Raises InvalidRequestError (kind ``null-key``) if an event has no key and ``on_null_key`` is ``fail``."""
    with_nulls = [name for name in pipeline.key if table[name].null_count]
    if not with_nulls:
        return table, 0
    if pipeline.on_null_key == "fail":
        raise _null_key(pipeline, with_nulls[0], table[with_nulls[0]].null_count)
    keyed = _with_keys(table, pipeline.key)
    return keyed, len(table) - len(keyed)


def _with_keys(table: pa.Table, key: tuple[str, ...]) -> pa.Table:
    mask = pc.is_valid(table[key[0]])
    for name in key[1:]:
        mask = pc.and_(mask, pc.is_valid(table[name]))
    return table.filter(mask)


def _null_key(pipeline: Pipeline, column: str, count: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"{pipeline.name}: key column {column} is null in {number_of(count, 'event')}",
        kind="null-key",
        hint="set 'on_null_key: drop' in the pipeline file to leave such events out and count them",
    )
