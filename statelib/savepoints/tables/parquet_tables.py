"""The columns of a table that a Parquet file can hold."""

import pyarrow as pa

_EMPTY = pa.struct([])


def storable(table: pa.Table) -> pa.Table:
    """Return the table without its columns of structs that have no fields, such as the key of a global SQL aggregate.
    Parquet does not support such columns; they contain no data, and ``encode_entries`` does not need them."""
    return table.select([name for name in table.column_names if table.schema.field(name).type != _EMPTY])
