"""Serialized entries from columns: the inverse of reading a state as a table."""

import numpy as np
import pyarrow as pa

from statelib.errors import InvalidRequestError
from statelib.model.amounts import number_of
from statelib.model.key_groups import assign_key_groups
from statelib.model.key_hash import FieldsHash
from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.serializers.columns.arrow import converted, struct_column
from statelib.serializers.entries.key_hashes import has_own_hash, hash_codes
from statelib.serializers.entries.keys import KeyGroups, encode_keys
from statelib.serializers.entries.rows import StateRows
from statelib.serializers.entries.values import encode_values, value_arrow_type
from statelib.serializers.registry import codec_of

_PARTS = {"user_key": "user_keys", "namespace": "namespaces", "timestamp": "timestamps"}
"""Columns besides key and value, and the argument of ``encode_keys`` for each."""


def encode_entries(
    schema: KeyedStateSchema, descriptor: StateDescriptor, table: pa.Table, rule: FieldsHash | None = None
) -> StateRows:
    """Return one entry per row of a table, in the order of the rows.

    The table has columns ``key`` and ``value`` (timers: ``timestamp`` instead of ``value``), and ``namespace`` and
    ``user_key`` if the state has them. A column ``key_group`` is used if neither the type of the key nor a ``rule``
    determines it, and ignored otherwise.

    Raise InvalidRequestError (``null-key``, ``bad-column``, ``bad-key-group``, and the codecs' kinds),
    UnsupportedError (``no-key-hash``)."""
    key_arrow, value_arrow = codec_of(schema.key_type).arrow_type, value_arrow_type(descriptor)
    table = _with_columns_without_fields(table, {"key": key_arrow, "value": value_arrow})
    unknown = sorted(set(table.column_names) - {"key_group", "key", "value", *_PARTS})
    needed = {"key"} if descriptor.kind is StateKind.TIMERS else {"key", "value"}
    if unknown or not needed <= set(table.column_names):
        raise InvalidRequestError(
            f"state {descriptor.name!r}: columns {table.column_names}: expected key, value and what its kind needs",
            kind="bad-column",
        )
    keys = _column(table, "key", key_arrow)
    types = {"user_key": descriptor.user_key_type, "namespace": descriptor.namespace_type}
    parts = {}
    for name, argument in _PARTS.items():
        if name in table.column_names:
            type_ = types.get(name)
            parts[argument] = _column(table, name, codec_of(type_).arrow_type if type_ else table[name].type)
    groups = _groups(schema, table, keys, rule)
    values = _column(table, "value", value_arrow) if "value" in table.column_names else keys
    return StateRows(encode_keys(schema, descriptor, keys, groups, **parts), encode_values(descriptor, values))


def _with_columns_without_fields(table: pa.Table, wanted: dict[str, pa.DataType]) -> pa.Table:
    """Return the table with those of the ``wanted`` columns that hold no data and are absent: a key or a value without
    fields, which Parquet cannot store."""
    for name, arrow_type in wanted.items():
        if name not in table.column_names and arrow_type == pa.struct([]):
            table = table.append_column(name, struct_column([], arrow_type, len(table)))
    return table


def _groups(schema: KeyedStateSchema, table: pa.Table, keys: pa.Array, rule: FieldsHash | None) -> KeyGroups:
    if keys.null_count:
        raise InvalidRequestError(f"{keys.null_count} of {number_of(len(keys), 'key')} are null", kind="null-key")
    if rule is None and "key_group" in table.column_names and has_own_hash(schema.key_type):
        groups = np.asarray(table["key_group"].to_numpy(), np.int32)
        if len(groups) and not (int(groups.min()) >= 0 and int(groups.max()) < schema.max_parallelism):
            raise InvalidRequestError(
                f"key groups {groups.min()} to {groups.max()}: expected 0 to {schema.max_parallelism - 1}",
                kind="bad-key-group",
            )
        return groups
    return assign_key_groups(hash_codes(schema.key_type, keys, rule), schema.max_parallelism)


def _column(table: pa.Table, name: str, wanted: pa.DataType) -> pa.Array:
    column = converted(table[name], wanted, f"column {name!r}")
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
