"""The format ``statelib`` of ``spark.read``: one state of a snapshot of statelib or Flink, as a DataFrame.

Spark plans a read in separate processes. Each of them opens the snapshot's metadata again and sends the tasks what they
need. A task reads some key groups of one handle, as Arrow columns.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from statelib.errors import InvalidRequestError
from statelib.savepoints.opened import Checkpoint
from statelib.savepoints.tables.state_table import Split, StateTable, state_table
from statelib.spark.dataframe.arrow_types import batches_of, spark_schema
from statelib.spark.dataframe.options import STATE_OPTIONS, check_options, names_of, noting_kinds, positive, snapshot_of
from statelib.spark.dataframe.state_filters import wanted_key_groups


class StateDataSource(DataSource):
    """The data source with the options ``path`` (the argument of ``load``), ``state``, ``operator``, ``columns``,
    ``partitions``, ``relocate`` and ``scratch``. ``cores``: the number of tasks that the session could run at once when
    the format was registered. ``variables``: those that describe the deployment; None stands for the environment of
    the process that plans the read."""

    cores = 1
    variables: Mapping[str, str] | None = None

    @classmethod
    def name(cls) -> str:
        return "statelib"

    def opened(self) -> Checkpoint:
        """Return the snapshot with its operator selected. Raises InvalidRequestError (``unknown-option``, ``no-path``),
        and the errors of :func:`~statelib.spark.dataframe.options.snapshot_of`."""
        check_options(self.options, STATE_OPTIONS)
        return snapshot_of(self.options, self.variables)

    def schema(self) -> StructType:
        """Return the schema of the columns in the option ``columns``; without this option, the schema of all columns.

        Raises InvalidRequestError (``unknown-column``)."""
        with noting_kinds():
            return self._schema_of(self._table())

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader. Raises InvalidRequestError (``bad-schema``) if the user set another schema than that of
        the snapshot."""
        with noting_kinds():
            table = self._table()
            expected = self._schema_of(table)
            if schema != expected:
                raise InvalidRequestError(
                    f"schema {schema.simpleString()}: expected {expected.simpleString()}, as the snapshot has it",
                    kind="bad-schema",
                    hint="leave the schema to the format; the option 'columns' chooses from it",
                )
            parts = positive(self.options, "partitions")
            return StateDataSourceReader(table, schema, parts, self.cores, self.options.get("scratch"))

    def _table(self) -> StateTable:
        return state_table(self.opened(), self.options.get("state"))

    def _schema_of(self, table: StateTable) -> StructType:
        columns = table.arrow_schema()
        wanted = names_of(self.options["columns"]) if "columns" in self.options else tuple(columns.names)
        unknown = [name for name in wanted if name not in columns.names]
        if unknown or len(set(wanted)) != len(wanted) or not wanted:
            raise InvalidRequestError(
                f"option columns {self.options['columns']!r}: expected some of {', '.join(columns.names)}, each once",
                kind="unknown-column",
            )
        return spark_schema(pa.schema([columns.field(name) for name in wanted]))


@dataclass
class KeyGroups(InputPartition):
    """The split that one task reads."""

    value: Split


class StateDataSourceReader(DataSourceReader):
    """The reader of one state. It is pickled for the tasks after Spark has pushed its filters."""

    def __init__(
        self, table: StateTable, schema: StructType, parts: int | None, cores: int, scratch: str | None
    ) -> None:
        self._table = table
        self._schema = schema
        self._parts = parts
        self._cores = cores
        self._scratch = scratch
        self._key_groups: frozenset[int] | None = None

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802 - PySpark's name
        """Store the key groups that the filters do not exclude, and return all filters, so that Spark applies them to
        the rows."""
        with noting_kinds():
            self._key_groups = wanted_key_groups(self._table.schema, filters)
        yield from filters

    def partitions(self) -> list[InputPartition]:
        with noting_kinds():
            return [KeyGroups(split) for split in self._table.splits(self._key_groups, self._parts, self._cores)]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split; no rows for None, which Spark passes if there are no splits."""
        if partition is None:
            return
        with noting_kinds():
            for table in self._table.read(partition.value, self._schema.names, self._scratch):
                yield from batches_of(table, self._schema)
