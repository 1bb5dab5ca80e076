"""The format ``statelib-metadata`` of ``spark.read``: facts about a snapshot's keyed states, without their entries."""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from statelib.savepoints.tables.state_facts import COLUMNS, state_facts
from statelib.spark.dataframe.arrow_types import batches_of, spark_schema
from statelib.spark.dataframe.options import METADATA_OPTIONS, check_options, noting_kinds, snapshot_of


class MetadataDataSource(DataSource):
    """The data source with the columns :data:`statelib.savepoints.tables.state_facts.COLUMNS` and the options ``path``,
    ``operator`` and ``relocate``. ``variables``: as in :class:`StateDataSource`."""

    variables: Mapping[str, str] | None = None

    @classmethod
    def name(cls) -> str:
        return "statelib-metadata"

    def schema(self) -> StructType:
        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        with noting_kinds():
            check_options(self.options, METADATA_OPTIONS)
            return MetadataReader(state_facts(snapshot_of(self.options, self.variables)), schema)


class MetadataReader(DataSourceReader):
    """The reader of the table of facts. The table is small, so it is made while the query is planned."""

    def __init__(self, facts: pa.Table, schema: StructType) -> None:
        self._facts = facts
        self._schema = schema

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        yield from batches_of(self._facts, self._schema)
