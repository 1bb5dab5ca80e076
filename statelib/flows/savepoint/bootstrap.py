"""Convert rows of any shape to serialized entries of an operator's state, in each task of a bootstrap.

Spark moves the entries to the subtask that owns their key group (``spark/imports/bootstrap.py``). This module does not
use Spark.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statelib.definition.bootstrap import Bootstrap, Key, Of
from statelib.definition.parts.types import type_of
from statelib.errors import InvalidRequestError
from statelib.formats.canonical.chunks import Chunk
from statelib.formats.operator_state import OperatorStateContent
from statelib.model.key_groups import KeyGroupRange, assign_key_groups
from statelib.model.savepoint import KeyedOperator
from statelib.model.state import StateDescriptor, StateKind
from statelib.model.types import Pojo, Row, StateType, Ttl, Tuple
from statelib.serializers.columns.arrow import converted, struct_column
from statelib.serializers.containers.ttl import TIMESTAMP, VALUE
from statelib.serializers.entries.encoding import encode_entries
from statelib.serializers.entries.rows import NO_ROWS, StateRows, join_rows
from statelib.serializers.entries.values import encode_values, value_arrow_type
from statelib.serializers.registry import codec_of
from statelib.serializers.scalars.windows import MOMENT

Batch = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], StateRows]
"""Arrays with one element per row: the key group, the index of the state, and the entry."""


def entries_of(bootstrap: Bootstrap, uid: str, state: str, rows: pa.Table) -> StateRows:
    """Return the entries that the rows describe, unsorted. A row has no entry if its value is null and the state cannot
    store null, or if it is a list without elements.

    Raises InvalidRequestError (``missing-column``, ``bad-columns``, ``bad-value-type``, ``null-key``, ``bad-hash``)."""
    operator, key, described = bootstrap.operator(uid), bootstrap.keyed[uid], bootstrap.operators[uid]
    descriptor, source = operator.schema.state(state), described.states[state]
    what = f"operator {uid!r}, state {state!r}"
    columns = {"key": made_of(operator.schema.key_type, key.of, rows, f"{what}, key")}
    columns |= _content(descriptor, source.of, rows, what)
    for name, part in (("user_key", source.user_key), ("namespace", source.namespace)):
        if part is not None:
            columns[name] = made_of(type_of(part.type), part.of, rows, f"{what}, {name}")
    key_groups = _given_key_groups(key, operator.schema.max_parallelism, rows, what)
    if key_groups is not None:
        columns["key_group"] = key_groups
    return encode_entries(operator.schema, descriptor, _with_values(descriptor, pa.table(columns)), operator.key_hash)


def _with_values(descriptor: StateDescriptor, table: pa.Table) -> pa.Table:
    """Return the rows that have an entry. A row of a wide table may have a value for one state and none for another."""
    if descriptor.kind is StateKind.LIST:
        return table.filter(pc.greater(pc.list_value_length(table["value"]), 0))
    if descriptor.kind in (StateKind.MAP, StateKind.TIMERS) or not table["value"].null_count:
        return table
    return table if _takes_null(descriptor) else table.filter(pc.is_valid(table["value"]))


def _takes_null(descriptor: StateDescriptor) -> bool:
    """Return whether null can be stored as a value, as in ``nullable<long>``."""
    try:
        encode_values(descriptor, pa.nulls(1, value_arrow_type(descriptor)))
    except InvalidRequestError:
        return False
    return True


def operator_state_of(bootstrap: Bootstrap, uid: str, state: str, rows: pa.Table) -> OperatorStateContent:
    """Return the content of an operator state: the rows, in their order.

    Raises InvalidRequestError (``missing-column``, ``bad-columns``, ``bad-value-type``)."""
    descriptor, source = bootstrap.operator_state(uid, state), bootstrap.operators[uid].operator_states[state]
    what = f"operator {uid!r}, operator state {state!r}"
    values = made_of(descriptor.value_type, source.of, rows, f"{what}, value")
    if descriptor.key_type is None or source.user_key is None:
        return OperatorStateContent(descriptor, values)
    return OperatorStateContent(
        descriptor, values, made_of(descriptor.key_type, source.user_key.of, rows, f"{what}, user_key")
    )


def _content(descriptor: StateDescriptor, of: Of, rows: pa.Table, what: str) -> dict[str, pa.Array]:
    """Return the column of the values, or of the times of timers, under its name."""
    if descriptor.kind not in (StateKind.LIST, StateKind.TIMERS):
        return {"value": made_of(descriptor.value_type, of, rows, f"{what}, value")}
    if not isinstance(of, str):
        raise InvalidRequestError(f"{what}, value: expected one column", kind="bad-columns")
    if descriptor.kind is StateKind.TIMERS:
        return {"timestamp": converted(_column(rows, of, what), MOMENT, f"{what}, timestamp")}
    return {"value": converted(_column(rows, of, what), value_arrow_type(descriptor), f"{what}, value")}


def _given_key_groups(key: Key, max_parallelism: int, rows: pa.Table, what: str) -> pa.Array | None:
    """Return the key groups from a column of the rows, for keys whose hash only the user's code can compute; None if
    the key groups are computed from the keys."""
    if key.hash is None or key.hash.of:
        return None
    name = key.hash.column or key.hash.key_group or ""
    column = converted(_column(rows, name, what), pa.int32(), f"{what}, {name}")
    if column.null_count:
        raise InvalidRequestError(f"{what}: {column.null_count} nulls in column {name!r}", kind="bad-hash")
    if key.hash.key_group:
        return column
    return pa.array(assign_key_groups(column.to_numpy().astype(np.int32), max_parallelism))


def made_of(type_: StateType, of: Of, rows: pa.Table, what: str) -> pa.Array:
    """Return a column of the type, made of the columns that ``of`` names. Raises as :func:`entries_of`."""
    if isinstance(of, str):
        return converted(_column(rows, of, what), codec_of(type_).arrow_type, what)
    parts = _parts(type_)
    if parts is None:
        raise InvalidRequestError(f"{what}: type {type_} has no parts, expected one column", kind="bad-columns")
    named = dict(of) if isinstance(of, Mapping) else dict(zip(parts, of, strict=False))
    if set(named) != set(parts) or (not isinstance(of, Mapping) and len(of) != len(parts)):
        raise InvalidRequestError(
            f"{what}: columns for {', '.join(named)}, expected {len(parts)}, for {', '.join(parts)}", kind="bad-columns"
        )
    wanted = codec_of(type_).arrow_type
    arrays = [_part(parts[name], wanted.field(name).type, named[name], rows, f"{what}.{name}") for name in parts]
    return struct_column(arrays, pa.struct([wanted.field(name) for name in parts]), len(rows))


def _part(type_: StateType | None, arrow: pa.DataType, of: Of, rows: pa.Table, what: str) -> pa.Array:
    if type_ is not None:
        return made_of(type_, of, rows, what)
    if not isinstance(of, str):
        raise InvalidRequestError(f"{what}: expected one column", kind="bad-columns")
    return converted(_column(rows, of, what), arrow, what)


def _parts(type_: StateType) -> dict[str, StateType | None] | None:
    """Return the name and the type of each part of a type; None if it has no parts. The type of a part is None if only
    its Arrow type is known."""
    if isinstance(type_, Tuple):
        return {f"f{i}": field for i, field in enumerate(type_.fields)}
    if isinstance(type_, Row | Pojo):
        return {field.name: field.type for field in type_.fields}
    if isinstance(type_, Ttl):
        return {TIMESTAMP: None, VALUE: type_.value}
    arrow = codec_of(type_).arrow_type
    return {field.name: None for field in arrow} if pa.types.is_struct(arrow) else None


def _column(rows: pa.Table, name: str, what: str) -> pa.Array:
    """Return a column, or a field of a column by its path with dots. A column whose name contains dots is preferred."""
    if name in rows.column_names:
        return _whole(rows[name])
    first, _, path = name.partition(".")
    column = _whole(rows[first]) if first in rows.column_names else None
    for step in path.split(".") if path else ():
        if column is None or not pa.types.is_struct(column.type) or column.type.get_field_index(step) < 0:
            column = None
            break
        column = pc.struct_field(column, step)
    if column is None or not path:
        raise InvalidRequestError(
            f"{what}: no column {name!r}, there are {', '.join(_paths(rows.schema))}", kind="missing-column"
        )
    return column


def _paths(schema: pa.Schema) -> list[str]:
    """Return the names of the columns, and the paths of the fields of each column that has fields."""
    structs = (column for column in schema if pa.types.is_struct(column.type))
    return [*schema.names, *(f"{column.name}.{field.name}" for column in structs for field in column.type)]


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def chunks(operator: KeyedOperator, first: int, batches: Iterable[Batch]) -> Iterator[Chunk]:
    """Yield chunks of whole key groups from batches that are sorted by (key group, state, key). ``first``: the first
    key group of the subtask. One batch and one key group are held in memory."""
    held: list[Batch] = []
    for batch in batches:
        if not len(batch[0]):
            continue
        last = int(batch[0][-1])
        done = int(np.searchsorted(batch[0], last))
        if (held and int(held[-1][0][-1]) != last) or done:
            held.append(_cut(batch, 0, done))
            yield _chunk(operator, KeyGroupRange(first, last - 1), held)
            first, held = last, []
        held.append(_cut(batch, done, len(batch[0])))
    if held:
        yield _chunk(operator, KeyGroupRange(first, int(held[-1][0][-1])), held)


def _cut(batch: Batch, start: int, stop: int) -> Batch:
    groups, states, rows = batch
    part = StateRows(rows.keys.slice(start, stop), rows.values.slice(start, stop))
    return groups[start:stop], states[start:stop], part


def _chunk(operator: KeyedOperator, key_groups: KeyGroupRange, held: Sequence[Batch]) -> Chunk:
    states = np.concatenate([part[1] for part in held])
    rows = join_rows([part[2] for part in held])
    by_state = [rows.take(np.flatnonzero(states == i)) for i in range(len(operator.schema.states))]
    return Chunk(key_groups, [part if len(part) else NO_ROWS for part in by_state])
