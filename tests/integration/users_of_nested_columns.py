"""A user's function of columns that hold rows and lists."""

import pyarrow as pa
import pyarrow.compute as pc


def count_tags(events: pa.Table, _state: pa.Table) -> pa.Table:
    """Return the number of tags in the events of each shop."""
    after = pc.struct_field(events["payload"].combine_chunks(), "after")
    tags = pc.list_value_length(pc.struct_field(after, "tags"))
    added = pa.table({"shop": events["shop"], "tags": tags}).group_by("shop").aggregate([("tags", "sum")])
    return added.select(["shop", "tags_sum"]).rename_columns(["shop", "tags"])
