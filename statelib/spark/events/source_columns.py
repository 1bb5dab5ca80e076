"""The rows of an opened source as events: the condition applied, and the declared columns in their declared types."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, StructType

from statelib.definition.parts.source import ChangeLogColumns
from statelib.definition.pipeline import Pipeline
from statelib.definition.source.parts import SourcePart
from statelib.errors import InvalidRequestError
from statelib.functions.change_logs.changes import APPLIED, CHANGE, DELETED
from statelib.spark.events.compared_bounds import check_compared_bounds
from statelib.spark.events.source_changes import (
    CHANGE_TYPE,
    ROW,
    change_of_rows,
    complete_envelopes,
    images_of_envelopes,
)
from statelib.spark.events.source_types import (
    BY_ZONE,
    INSTANT,
    LOCAL,
    is_read_as,
    quoted,
    spark_name,
    sql_type,
    times_differ,
)
from statelib.spark.session.either_kind import analysed

_ANSI = "spark.sql.ansi.enabled"
_BY_CHANCE = "its value can be another one when a task is repeated"
_REFUSED = {
    "NESTED_AGGREGATE_FUNCTION": "expected a value for each row, found an aggregate",
    "_LEGACY_ERROR_TEMP_1031": "expected a value for each row, found a window function",
    "AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION": _BY_CHANCE,
}
"""The reasons against an expression, by Spark's name for its error about the argument of an aggregate."""

_QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`")
_CLOCK = re.compile(
    r"(?<![\w.])(?:(current_timestamp|current_date|current_time|localtimestamp)\b(?!\s*\()"
    r"|(?:now|curdate|unix_timestamp|current_timestamp|current_date|current_time|localtimestamp)\s*\(\s*\))",
    re.IGNORECASE,
)
"""The functions that read the clock, some of them also without parentheses (the group). For Spark, their value is the
same for all rows of one query, and therefore not a value of chance."""
_SPECIAL = r"['\"]\s*(?:now|today|yesterday|tomorrow)\b"
_SPECIAL_TIME = re.compile(
    rf"(?:date|timestamp\w*|cast)\s*\(?\s*{_SPECIAL}|{_SPECIAL}[^'\"]*['\"]\s*::\s*(?:date|timestamp)", re.IGNORECASE
)
"""A text that Spark takes for a time of the run where it expects a date or a time: ``date'today'``."""
_SPECIAL_TEXT = re.compile(rf"{_SPECIAL}[^'\"]*['\"]", re.IGNORECASE)


def events_of(spark: SparkSession, pipeline: Pipeline, part: SourcePart, frame: DataFrame) -> DataFrame:
    """Return the events of one part: the rows of ``frame``, or the elements of their lists, that the source's ``where``
    accepts, with all declared columns.

    Raises InvalidRequestError: ``missing-column``, ``column-type``, ``bad-expression``."""
    with _naming_schema(part):
        return _events_of(spark, pipeline, part, frame)


@contextmanager
def _naming_schema(part: SourcePart) -> Iterator[None]:
    """Add the key ``file_schema`` to the hint of an error if the values of other intervals may avoid the error."""
    try:
        yield
    except InvalidRequestError as error:
        if part.source.has_no_types:
            declare = f"declare the columns of the files in {part.field}.file_schema"
            error.hint += f"; if only this interval has no such values, {declare}"
        raise


def _events_of(spark: SparkSession, pipeline: Pipeline, part: SourcePart, frame: DataFrame) -> DataFrame:
    source = part.source
    computed = any(column.expr for column in source.columns.values())
    if source.each or source.where or source.delete_when or source.changes or computed:
        check_strict(spark, pipeline, part.field)
    for name, text in source.each.items():
        frame = _elements(pipeline, f"{part.field}.each.{name}", name, text, frame)
    if part.where is not None:
        frame = checked_expression(pipeline, f"{part.field}.where", part.where, frame, part.where, filters=True)
    check_compared_bounds(pipeline, part, frame)
    if source.changes is not None:
        frame = _changed_rows(pipeline, part, source.changes, frame)
    actual = _own_columns(part, frame)
    missing = [name for name, column in source.columns.items() if column.expr is None and name not in actual]
    if missing:
        raise InvalidRequestError(
            f"pipeline {pipeline.name}: source {part.place} has no column {', '.join(missing)}; "
            f"it has {', '.join(name for name in actual if name != CHANGE)}",
            kind="missing-column",
            hint=f"correct {part.field}.columns in the pipeline file",
        )
    return frame.selectExpr(*_columns(pipeline, part, frame, actual))


def _elements(pipeline: Pipeline, field: str, name: str, text: str, frame: DataFrame) -> DataFrame:
    """Return a row per element of a list, with the element in the column ``name`` beside the columns of its row."""
    if name.lower() in map(str.lower, frame.columns):
        raise _bad_expression(pipeline, field, text, "the source has a column of this name: choose another name")
    (values,) = checked_expression(pipeline, field, text, frame, f"({text})").schema.fields
    if not isinstance(values.dataType, ArrayType):
        raise _bad_expression(pipeline, field, text, f"expected a list, found {values.dataType.simpleString()}")
    return frame.selectExpr("*", f"explode({text}) AS {quoted(name)}")


def _changed_rows(pipeline: Pipeline, part: SourcePart, changes: ChangeLogColumns, frame: DataFrame) -> DataFrame:
    """Return the rows before and after each change of a log, with the column :data:`CHANGE`."""
    field = f"{part.field}.changes"
    if changes.before is None:
        expression = change_of_rows(changes)
        checked_expression(pipeline, field, changes.op, frame, expression)
        return frame.selectExpr("*", expression)
    for name, text in (("op", changes.op), ("before", changes.before), ("after", changes.after or "")):
        checked_expression(pipeline, f"{field}.{name}", text, frame, f"({text})")
    frame = checked_expression(pipeline, field, changes.op, frame, complete_envelopes(changes, frame), filters=True)
    others = [quoted(name) for name in frame.columns if name != ROW]
    images = images_of_envelopes(changes, frame)
    checked_expression(pipeline, field, f"{changes.before}, {changes.after}", frame, images)
    return frame.selectExpr(*others, images)


def _own_columns(part: SourcePart, frame: DataFrame) -> dict[str, tuple[str, str]]:
    """Return the SQL expression and the type of each column of the source by name. The fields of a row before or after
    a change hide the columns beside it."""
    own = {field.name: (quoted(field.name), field.dataType) for field in frame.schema.fields}
    row = frame.schema[ROW].dataType if ROW in frame.columns else None
    if part.source.changes is not None and part.source.changes.before is not None and isinstance(row, StructType):
        own |= {field.name: (f"`{ROW}`.{quoted(field.name)}", field.dataType) for field in row.fields}
    return {name: (expression, type_.simpleString()) for name, (expression, type_) in own.items()}


def no_events(spark: SparkSession, pipeline: Pipeline) -> DataFrame:
    """Return a DataFrame without rows that has the declared columns."""
    columns = [f"{quoted(name)} {sql_type(type_)}" for name, type_ in pipeline.column_types().items()]
    if pipeline.has_changes:
        columns.append(f"`{CHANGE}` {CHANGE_TYPE}")
    return spark.createDataFrame([], ", ".join(columns))


def _columns(
    pipeline: Pipeline, part: SourcePart, frame: DataFrame, actual: Mapping[str, tuple[str, str]]
) -> list[str]:
    """Return the SQL expression for each declared column, in its declared type: a null for a column that only other
    sources have. Expressions in SQL need one JVM call for all columns."""
    expressions = []
    for name, type_ in pipeline.column_types().items():
        column = part.source.columns.get(name)
        if column is None:
            expressions.append(f"CAST(NULL AS {sql_type(type_)}) AS {quoted(name)}")
        elif column.expr is None:
            expressions.append(_plain_column(pipeline, part, name, actual[name], spark_name(type_)))
        else:
            expressions.append(_computed_column(pipeline, part, name, column.expr, frame))
    if pipeline.has_changes:
        expressions.append(_change(pipeline, part, frame))
    return expressions


def _change(pipeline: Pipeline, part: SourcePart, frame: DataFrame) -> str:
    """Return the SQL expression for what each event does: it is applied, retracted, or it deletes its key."""
    condition = part.source.delete_when
    if part.source.changes is not None:
        return f"`{CHANGE}`"
    if condition is None:
        return f"CAST({APPLIED} AS {CHANGE_TYPE}) AS `{CHANGE}`"
    expression = f"CAST(IF(({condition}), {DELETED}, {APPLIED}) AS {CHANGE_TYPE}) AS `{CHANGE}`"
    checked_expression(pipeline, f"{part.field}.delete_when", condition, frame, expression)
    return expression


def _plain_column(pipeline: Pipeline, part: SourcePart, name: str, own: tuple[str, str], wanted: str) -> str:
    column, actual = own
    if is_read_as(actual, wanted):
        return f"{column if actual == wanted else f'CAST({column} AS {wanted})'} AS {quoted(name)}"
    zone, by_zone = part.source.time_zone, {actual, wanted} == {LOCAL, INSTANT}
    if zone is not None and by_zone:
        return f"{_converted(column, zone, wanted)} AS {quoted(name)}"
    declared = part.source.columns[name].type
    if by_zone:
        repair = f"name the zone of times without one in {part.field}.time_zone"
    elif actual == "string":
        repair = f"have its text converted: {name}: {{expr: {quoted(name)!r}, type: {declared}}}"
    else:
        repair = "compute the column with 'expr'"
    raise InvalidRequestError(
        f"pipeline {pipeline.name}: column {name} of {part.place} is {actual}, {part.field}.columns declares "
        f"{declared} ({wanted} in Spark)",
        kind="column-type",
        hint=f"correct {part.field}.columns in the pipeline file, or {repair}",
    )


def _computed_column(pipeline: Pipeline, part: SourcePart, name: str, text: str, frame: DataFrame) -> str:
    """Return the SQL expression for a column with ``expr``. By the zone of the source, a time without a zone or a date
    becomes an instant, and an instant a time without a zone."""
    field, zone = f"{part.field}.columns.{name}", part.source.time_zone
    type_ = pipeline.column_types()[name]
    wanted, expression = spark_name(type_), f"CAST(({text}) AS {sql_type(type_)})"
    if zone is not None:
        (value,) = checked_expression(pipeline, field, text, frame, f"({text})").schema.fields
        if value.dataType.simpleString() in BY_ZONE.get(wanted, ()):
            expression = _converted(f"({text})", zone, wanted)
        if times_differ(value.dataType, type_):
            raise _times_within(pipeline, field, part.source.columns[name].type, value.dataType, zone)
    expression = f"{expression} AS {quoted(name)}"
    checked_expression(pipeline, field, text, frame, expression)
    return expression


def _times_within(pipeline: Pipeline, field: str, declared: str, actual: DataType, zone: str) -> InvalidRequestError:
    """Return the error for an expression with times in a list, a map or a row, to which no zone is applied."""
    return InvalidRequestError(
        f"pipeline {pipeline.name}: {field} is {actual.simpleString()}, declared is {declared}: times in a list, a map "
        f"or a row are not converted by time_zone {zone}",
        kind="column-type",
        hint=f"convert each of them in the expression: to_utc_timestamp(at, '{zone}') makes an instant of a time "
        f"without a zone, CAST(from_utc_timestamp(at, '{zone}') AS TIMESTAMP_NTZ) the reverse, and "
        "transform(times, at -> …) does so for a list",
    )


def _converted(column: str, zone: str, wanted: str) -> str:
    """Return the SQL expression for an instant as the local time of a zone, or for a local time as the instant."""
    from_zone, to_zone = (zone, "UTC") if wanted == INSTANT else ("UTC", zone)
    return f"CAST(convert_timezone('{from_zone}', '{to_zone}', CAST({column} AS {LOCAL})) AS {wanted})"


def checked_expression(
    pipeline: Pipeline, field: str, written: str, frame: DataFrame, sql: str, *, filters: bool = False
) -> DataFrame:
    """Return ``frame`` with a condition, or with one column, of the pipeline file. ``field``: where the user wrote it;
    ``written``: the user's text.

    Raises InvalidRequestError (``bad-expression``) if Spark does not understand it, if it would make one row of several
    rows, or if its value can differ from try to try."""
    try:
        result = analysed(frame.where(sql) if filters else frame.selectExpr(sql))
    except (AnalysisException, ParseException) as error:
        raise _bad_expression(pipeline, field, written, _first_line(str(error))) from error
    reason = _reason_against(frame, sql)
    if reason is not None:
        raise _bad_expression(pipeline, field, written, reason)
    return result


def _reason_against(frame: DataFrame, sql: str) -> str | None:
    """Return why an expression of ``frame`` must not be used although Spark understands it; None if it may be.

    Spark allows no aggregate and no value of chance in the argument of an aggregate, and nothing is computed here."""
    if _reads_clock(frame, sql):
        return _BY_CHANCE
    try:
        analysed(frame.select(f.count(f.expr(sql))))
    except AnalysisException as error:
        return _REFUSED.get(error.getCondition() or "")
    return None


def _reads_clock(frame: DataFrame, sql: str) -> bool:
    """Return whether an expression uses the time of the run. A column can have the name of such a function."""
    if _SPECIAL_TIME.search(sql) or _takes_text_for_time(frame, sql):
        return True
    columns = {name.lower() for name in frame.columns}
    return any((match[1] or "").lower() not in columns for match in _CLOCK.finditer(_QUOTED.sub("''", sql)))


def _takes_text_for_time(frame: DataFrame, sql: str) -> bool:
    """Return whether Spark casts ``'today'`` or such a text to a time, as in ``at < 'today'``. A number in its place
    can be compared with a text, but not with a time."""
    numbers = _SPECIAL_TEXT.sub("0", sql)
    if numbers == sql:
        return False
    try:
        analysed(frame.select(f.expr(numbers)))
    except AnalysisException:
        return True
    return False


def check_strict(spark: SparkSession, pipeline: Pipeline, field: str) -> None:
    """Raise InvalidRequestError (``bad-expression``) if Spark would turn a value that does not fit into a null.
    ``field``: where expressions are written."""
    setting = spark.conf.get(_ANSI)
    if setting != "true":
        raise InvalidRequestError(
            f"pipeline {pipeline.name}: {field}: expressions need {_ANSI}: true, found {setting}: a "
            "value that does not fit its type would become null without an error",
            kind="bad-expression",
            hint=f"leave {_ANSI} at its default in Spark's configuration",
        )


def _bad_expression(pipeline: Pipeline, field: str, written: str, reason: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"pipeline {pipeline.name}: {field}: {written!r}: {reason}",
        kind="bad-expression",
        hint="write SQL of Spark on the source's own columns",
    )


def _first_line(text: str) -> str:
    """Return the first line of Spark's message, which says what is wrong; the rest shows the plan."""
    return text.strip().splitlines()[0].removesuffix(";")
