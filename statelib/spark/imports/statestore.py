"""The conversion of a Structured Streaming state store to a state of a pipeline.

Spark's own ``statestore`` source reads the store; each row becomes one entry. The content of a store depends on its
query (partial results of aggregates, fields of a user's state). The caller therefore maps parts of ``key`` and
``value`` to the columns of the pipeline's key and to the fields of the state's value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructType

from statelib.definition.pipeline import Pipeline
from statelib.errors import InvalidRequestError, NotFoundError
from statelib.flows.savepoint.imports import importable, value_fields
from statelib.model.state import StateDescriptor
from statelib.model.types import StateType
from statelib.serializers.entries.values import value_arrow_type
from statelib.serializers.registry import codec_of
from statelib.spark.dataframe.arrow_types import spark_type
from statelib.spark.events.source_columns import check_strict
from statelib.spark.imports.seed_columns import fits
from statelib.spark.session.either_kind import analysed

VALUE = "__statelib_value"
USER_KEY = "__statelib_user_key"


@dataclass(frozen=True)
class StateStoreMapping:
    """The mapping of a store to a state, as Spark SQL expressions over the store's two structs, ``key`` and ``value``.

    ``state``: the name of the state. ``keys``: the expressions by column of the pipeline's key; by default, the field
    of the same name in ``key``. ``values``: the expressions by field of the state's value, with '' for a value without
    fields; by default, the field of the same name in ``value``, or its only field. ``user_key``: the expression for the
    user key of map state."""

    state: str
    keys: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    user_key: str = ""

    def __str__(self) -> str:
        """Return all that decides what the entries are: two mappings with equal texts are equal."""
        parts = [f"key {name}={text}" for name, text in sorted(self.keys.items())]
        parts += [f"value {name}={text}" for name, text in sorted(self.values.items())]
        parts += [f"user_key={self.user_key}"] if self.user_key else []
        return " ".join([f"state={self.state}", *parts])


def read_statestore(spark: SparkSession, location: str, options: Mapping[str, str]) -> DataFrame:
    """Return the columns ``key`` and ``value`` of a query's state store. ``location``: the checkpoint location of the
    query. ``options``: options of Spark's source (``batchId``, ``operatorId``, ``storeName``, ...).

    Raises NotFoundError (``no-statestore``)."""
    try:
        stores = spark.read.format("statestore").options(**options)
        return analysed(stores.load(location).select("key", "value"))
    except PySparkException as error:
        raise NotFoundError(
            f"state store of {location} cannot be read: {error.getCondition()}",
            kind="no-statestore",
            hint="give the checkpoint location of the query, and its operatorId and storeName if it has several",
        ) from error


def entries_of(store: DataFrame, pipeline: Pipeline, mapping: StateStoreMapping) -> DataFrame:
    """Return the entries of the store: the key columns in their declared types, ``USER_KEY`` for map state, and
    ``VALUE``.

    Raises InvalidRequestError: ``no-mapping`` for a column or field with neither an expression nor a field of its name,
    ``bad-mapping`` for an invalid expression, or an expression for a column or field that does not exist,
    ``column-type`` for one whose values would be cut or rounded."""
    descriptor = importable(pipeline, mapping.state)
    _check_names(pipeline, descriptor, mapping)
    check_strict(store.sparkSession, pipeline, "--value")
    try:
        return store.select(*_columns(store, pipeline, descriptor, mapping))
    except AnalysisException as error:
        raise InvalidRequestError(
            f"{pipeline.name}: state {mapping.state!r}: {error.getMessage()}", kind="bad-mapping", hint=_hint(store)
        ) from error


def _columns(
    store: DataFrame, pipeline: Pipeline, descriptor: StateDescriptor, mapping: StateStoreMapping
) -> list[Column]:
    types = pipeline.column_types()
    columns = [
        _cast(store, _column(store, "key", mapping.keys.get(name, ""), name), types[name], name).alias(name)
        for name in pipeline.key
    ]
    if descriptor.user_key_type is not None:
        user_key = _column(store, "key", mapping.user_key, "user_key")
        columns.append(_cast(store, user_key, descriptor.user_key_type, "the user key").alias(USER_KEY))
    return [*columns, _value(store, descriptor, mapping).alias(VALUE)]


def _check_names(pipeline: Pipeline, descriptor: StateDescriptor, mapping: StateStoreMapping) -> None:
    """Raise InvalidRequestError (``bad-mapping``) for an expression whose column or field does not exist, because a
    misspelt name would otherwise be ignored."""
    fields = value_fields(descriptor) or ("",)
    unknown = [*(set(mapping.keys) - set(pipeline.key)), *(set(mapping.values) - set(fields))]
    if unknown or (mapping.user_key and descriptor.user_key_type is None):
        raise InvalidRequestError(
            f"{pipeline.name}: expressions for {', '.join(map(repr, unknown)) or 'a user key'}: there are the key "
            f"columns {', '.join(pipeline.key)}, and of state {descriptor.name!r} {', '.join(fields) or 'a value'}",
            kind="bad-mapping",
        )


def _value(store: DataFrame, descriptor: StateDescriptor, mapping: StateStoreMapping) -> Column:
    wanted = spark_type(value_arrow_type(descriptor))
    names = value_fields(descriptor)
    if not names:
        return _as(store, _column(store, "value", mapping.values.get("", ""), None), wanted, "the value")
    assert isinstance(wanted, StructType)
    fields = [
        _as(store, _column(store, "value", mapping.values.get(name, ""), name), wanted[name].dataType, name).alias(name)
        for name in names
    ]
    return f.struct(*fields)


def _cast(store: DataFrame, column: Column, type_: StateType, name: str) -> Column:
    return _as(store, column, spark_type(codec_of(type_).arrow_type), name)


def _as(store: DataFrame, column: Column, wanted: DataType, name: str) -> Column:
    """Return a column in the wanted type. Raises InvalidRequestError (``column-type``) if a cast would change values
    without an error."""
    actual = store.select(column).schema.fields[0].dataType
    if fits(actual, wanted):
        return column.cast(wanted)
    raise InvalidRequestError(
        f"import: {name} is {actual.simpleString()} in the store, {wanted.simpleString()} in the state",
        kind="column-type",
        hint="write an expression of that type, such as CAST(value.sum AS BIGINT)",
    )


def _column(store: DataFrame, struct: str, expression: str, name: str | None) -> Column:
    """Return the column of an expression; without an expression, the field ``name`` of ``struct``, or its only field if
    ``name`` is None. Raises InvalidRequestError (``no-mapping``)."""
    if expression:
        return f.expr(expression)
    fields = _names(store.schema[struct].dataType)
    if name in fields or (name is None and len(fields) == 1):
        return f.col(struct).getField(name or fields[0])
    raise InvalidRequestError(
        f"nothing says where {f'{name!r}' if name else 'the value'} comes from", kind="no-mapping", hint=_hint(store)
    )


def _names(kind: DataType) -> list[str]:
    return kind.fieldNames() if isinstance(kind, StructType) else []


def _hint(store: DataFrame) -> str:
    return f"write an expression over key {store.schema['key'].dataType.simpleString()} and value " + (
        store.schema["value"].dataType.simpleString()
    )
