"""What of a table a Parquet file can hold."""

import pyarrow as pa

_EMPTY = pa.struct([])


def storable(table: pa.Table) -> pa.Table:
    """The table without columns of rows that have no field, such as the key of a global SQL aggregate: they say
    nothing, and Parquet has no such columns. ``encode_entries`` does without them."""
    return table.select([name for name in table.column_names if table.schema.field(name).type != _EMPTY])
