"""``spark.read.format("statelib-metadata")``: what a snapshot's keyed states are, without reading their entries."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from statelib.savepoints.tables.state_facts import COLUMNS, state_facts
from statelib.spark.dataframe.arrow_types import batches_of, spark_schema
from statelib.spark.dataframe.options import METADATA_OPTIONS, check_options, kinds_told, snapshot_of


class MetadataDataSource(DataSource):
    """Columns: :data:`statelib.savepoints.tables.state_facts.COLUMNS`. Options: ``path``, ``operator``,
    ``relocate``."""

    @classmethod
    def name(cls) -> str:
        return "statelib-metadata"

    def schema(self) -> StructType:
        return spark_schema(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:
        with kinds_told():
            check_options(self.options, METADATA_OPTIONS)
            return MetadataReader(state_facts(snapshot_of(self.options)), schema)


class MetadataReader(DataSourceReader):
    """The table, read while the query was planned: it is small."""

    def __init__(self, facts: pa.Table, schema: StructType) -> None:
        self._facts = facts
        self._schema = schema

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002 - there is one
        yield from batches_of(self._facts, self._schema)
