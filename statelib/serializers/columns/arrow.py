"""Arrow columns as numpy arrays and back.

Arrays may be slices, so the offset of an array is always taken into account. Nothing is copied value by value.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pat

from statelib.errors import InvalidRequestError, UnsupportedError
from statelib.model.types import StateType
from statelib.wire.ragged import Offsets, Ragged

MAX_COLUMN_BYTES = 2**31 - 1
"""The most bytes or elements that a string, binary, list or map column can hold: Arrow's offsets have 32 bits."""

_FAMILIES = (
    ("decimal", pat.is_decimal),
    ("number", lambda t: pat.is_integer(t) or pat.is_floating(t)),
    ("string", lambda t: pat.is_string(t) or pat.is_large_string(t) or pat.is_string_view(t)),
    ("bytes", lambda t: pat.is_binary(t) or pat.is_large_binary(t) or pat.is_binary_view(t)),
    ("date", pat.is_date),
    ("time", pat.is_time),
    ("instant", lambda t: pat.is_timestamp(t) and t.tz is not None),
    ("datetime", lambda t: pat.is_timestamp(t) and t.tz is None),
)

_CONVERTED = {
    ("number", "decimal"), ("decimal", "number"), ("number", "string"), ("decimal", "string"), ("date", "datetime"),
    ("instant", "datetime"),
}  # fmt: skip
"""The pairs of families between which a user's values are converted; an instant becomes the clock's time in UTC."""
_NO_ZONE = "a time without a zone is no instant: compute its time in UTC, with that zone"


def _refuse_nulls(values: pa.Array, what: StateType) -> None:
    """Raise InvalidRequestError (``null-value``) naming the first row that is null."""
    if values.null_count:
        row = int(np.argmin(valid_rows(values)))
        raise InvalidRequestError(
            f"column of type {what}: expected no null, found {values.null_count}, the first in row {row}",
            kind="null-value",
            hint="only fields of a row and values of a map may be null",
        )


def scalar_column(values: pa.Array, arrow_type: pa.DataType, what: StateType) -> pa.Array:
    """Return ``values`` as exactly ``arrow_type``. A value is converted within its family of types only: a string never
    becomes a number, and a local time never becomes an instant.

    Raise InvalidRequestError (``null-value``, ``bad-value-type``)."""
    if pat.is_dictionary(values.type):
        values = values.dictionary_decode()
    _refuse_nulls(values, what)
    if values.type == arrow_type:
        return values
    if len(values) and _family(values.type) != _family(arrow_type):
        raise wrong_arrow_type(values.type, arrow_type, what)
    try:
        return values.cast(arrow_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRequestError(
            f"column of type {what}: expected values of {arrow_type}, found {values.type}: {error}",
            kind="bad-value-type",
        ) from error


def converted(column: pa.Array, arrow_type: pa.DataType, what: str) -> pa.Array:
    """Return a user's column as ``arrow_type``. ``what`` names it in errors.

    The fields of structs may have another order, but each must be there and no other: Arrow's cast would make nulls of
    fields that are missing, and drop the others. Types are converted as :func:`other_meaning` allows.

    Raise InvalidRequestError (``bad-value-type``)."""
    if column.type == arrow_type:
        return column
    unmatched = sorted({*fields_beyond(column.type, arrow_type), *fields_beyond(arrow_type, column.type)})
    try:
        if unmatched:
            problem = f"only one of them has the {'field' if len(unmatched) == 1 else 'fields'} {', '.join(unmatched)}"
        elif not (problem := other_meaning(column.type, arrow_type)):
            return column.cast(arrow_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        problem = str(error)
    raise InvalidRequestError(
        f"{what} is of type {column.type}, expected {arrow_type}: {problem}", kind="bad-value-type"
    )


def fields_beyond(type_: pa.DataType, other: pa.DataType) -> list[str]:
    """Return the names of the fields that the structs of a type have, at any depth, and those of the other type have
    not. Arrow's cast to the other type drops their values without an error."""
    own = []
    if pat.is_struct(type_) and pat.is_struct(other):
        others = {field.name for field in other}
        own = [field.name for field in type_ if field.name not in others]
    return own + [name for pair in _inner_types(type_, other) or () for name in fields_beyond(*pair)]


def other_meaning(type_: pa.DataType, other: pa.DataType) -> str:
    """Return why values of a type would not be the same values in the other type, at any depth; "" if they would.
    Arrow's cast would take a time without a zone for one in UTC, drop the time of a day, and read a number from a
    text."""
    if pat.is_dictionary(type_):
        return other_meaning(type_.value_type, other)
    inner = _inner_types(type_, other)
    if inner is not None:
        return next(filter(None, (other_meaning(*pair) for pair in inner)), "")
    family, wanted = _family(type_), _family(other)
    if pat.is_null(type_) or family == wanted or (family, wanted) in _CONVERTED:
        return ""
    return _NO_ZONE if (family, wanted) == ("datetime", "instant") else f"{type_} is not converted to {other}"


def _inner_types(type_: pa.DataType, other: pa.DataType) -> list[tuple[pa.DataType, pa.DataType]] | None:
    """Return the pairs of types inside two nested types of one kind: of the fields with one name, of the keys and items
    of maps, or of the elements of lists. None if they are not of one kind."""
    if pat.is_struct(type_) and pat.is_struct(other):
        others = {field.name: field.type for field in other}
        return [(field.type, others[field.name]) for field in type_ if field.name in others]
    if pat.is_map(type_) and pat.is_map(other):
        return [(type_.key_type, other.key_type), (type_.item_type, other.item_type)]
    if hasattr(type_, "value_type") and hasattr(other, "value_type"):
        return [(type_.value_type, other.value_type)]
    return None


def wrong_arrow_type(actual: pa.DataType, expected: pa.DataType, what: StateType) -> InvalidRequestError:
    """Return the error for a column whose Arrow type does not fit the type ``what``."""
    return InvalidRequestError(f"column of type {what}: expected {expected}, found {actual}", kind="bad-value-type")


def _family(arrow_type: pa.DataType) -> str:
    return next((name for name, test in _FAMILIES if test(arrow_type)), str(arrow_type))


def valid_rows(values: pa.Array) -> npt.NDArray[np.bool_]:
    """Return one boolean per row: true if the row is not null."""
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def numbers(values: pa.Array, dtype: str) -> npt.NDArray[np.generic]:
    """Return the slots of a fixed-width column as ``dtype``, which has the same width. The result is a view of the
    column's buffer."""
    data = values.buffers()[1]
    if data is None or not len(values):
        return np.empty(0, dtype)
    return np.frombuffer(data, dtype, len(values), values.offset * np.dtype(dtype).itemsize)


def number_array(slots: npt.NDArray[np.generic], arrow_type: pa.DataType) -> pa.Array:
    """Return a column with these slots. This is the inverse of :func:`numbers`."""
    return pa.Array.from_buffers(arrow_type, len(slots), [None, pa.py_buffer(np.ascontiguousarray(slots))])


def byte_rows(values: pa.Array) -> Ragged:
    """Return the bytes of a ``string`` or ``binary`` column without nulls. Strings are UTF-8."""
    _, offsets, data = values.buffers()
    if offsets is None or not len(values):
        return Ragged(np.empty(0, np.uint8), np.zeros(len(values) + 1, np.int64))
    bounds = np.frombuffer(offsets, np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
    return Ragged(np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8), bounds)


def byte_array(rows: Ragged, arrow_type: pa.DataType) -> pa.Array:
    """Return a column of these bytes. This is the inverse of :func:`byte_rows`. For a string the caller guarantees
    UTF-8."""
    data = rows.data[rows.offsets[0] : rows.offsets[-1]]
    offsets = small_offsets(rows.offsets - rows.offsets[0], arrow_type)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(arrow_type, len(rows), buffers)


def small_offsets(offsets: Offsets, what: object) -> npt.NDArray[np.int32]:
    """Return offsets as Arrow stores them.

    Raise UnsupportedError (``column-too-large``) beyond :data:`MAX_COLUMN_BYTES`."""
    if offsets[-1] > MAX_COLUMN_BYTES:
        raise UnsupportedError(
            f"column of {what}: expected at most {MAX_COLUMN_BYTES} bytes or elements, found {offsets[-1]}",
            kind="column-too-large",
            hint="decode fewer rows at a time",
        )
    return offsets.astype(np.int32)


def nested_column(values: pa.Array, arrow_type: pa.DataType, what: StateType) -> pa.Array:
    """Return a ``list``, ``map`` or ``struct`` column that has no nulls. Only its outermost type is converted; types
    inside stay as they are.

    Raise InvalidRequestError (``null-value``, ``bad-value-type``)."""
    _refuse_nulls(values, what)
    if values.type.id == arrow_type.id:
        return values
    if pat.is_large_list(values.type) and pat.is_list(arrow_type):
        return values.cast(pa.list_(values.type.value_type))
    if pat.is_null(values.type):
        return pa.array([], arrow_type)
    raise wrong_arrow_type(values.type, arrow_type, what)


def struct_fields(values: pa.Array, arrow_type: pa.DataType, what: StateType) -> list[pa.Array]:
    """Return the fields of a ``struct`` column without nulls, in their order. Names of fields are ignored."""
    values = nested_column(values, arrow_type, what)
    if values.type.num_fields != arrow_type.num_fields:
        raise wrong_arrow_type(values.type, arrow_type, what)
    return [values.field(i) for i in range(values.type.num_fields)]


def struct_column(columns: Sequence[pa.Array], arrow_type: pa.DataType, rows: int) -> pa.Array:
    """Return a ``struct`` column of ``rows`` rows without nulls. Its type may have no field at all."""
    if not columns:
        return pa.Array.from_buffers(arrow_type, rows, [None])
    return pa.StructArray.from_arrays(columns, fields=list(arrow_type))


def one_nan(values: pa.Array) -> pa.Array:
    """Return the values with every NaN replaced by the one that Java writes. So all NaN are one key, as they are for
    ``Double.equals`` and in Flink's bytes; 0.0 and -0.0 stay two keys. Structs are searched
    for NaN; lists and maps are not."""
    type_ = values.type
    if pat.is_float32(type_) or pat.is_float64(type_):
        nan = pc.is_nan(values)
        return pc.if_else(nan, pa.scalar(float("nan"), type_), values) if pc.any(nan).as_py() else values
    if not pat.is_struct(type_):
        return values
    fields = values.flatten()
    replaced = [one_nan(field) for field in fields]
    if all(new is old for new, old in zip(replaced, fields, strict=True)):
        return values
    return pa.StructArray.from_arrays(replaced, fields=list(type_), mask=values.is_null())


def list_bounds(values: pa.Array) -> Offsets:
    """Return the offsets of a ``list`` or ``map`` column into its children, which are not sliced."""
    return np.asarray(numbers(values.offsets, "i4"), np.int64) if len(values) else np.zeros(1, np.int64)


def present(values: pa.Array) -> tuple[pa.Array, npt.NDArray[np.bool_]]:
    """Return the values that are not null, and one boolean per row: true if it has a value. This is the inverse of
    :func:`with_nulls`."""
    if not values.null_count:
        return values, np.ones(len(values), np.bool_)
    if values.null_count == len(values):
        return values.slice(0, 0), np.zeros(len(values), np.bool_)
    valid = values.is_valid()
    return values.filter(valid), np.asarray(valid.to_numpy(zero_copy_only=False), np.bool_)


def with_nulls(values: pa.Array, valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Return one row per element of ``valid``: the next of ``values`` if it is true, else null."""
    if valid.all():
        return values
    if pat.is_null(values.type):
        return pa.nulls(len(valid))
    return values.take(pa.array(np.cumsum(valid) - 1, mask=~valid))


def map_column(offsets: Offsets, keys: pa.Array, items: pa.Array, arrow_type: pa.DataType, what: object) -> pa.Array:
    """Return a column of maps.

    Raise UnsupportedError (``null-map-key``): in Java a key may be null, in an Arrow column it may not."""
    if keys.null_count:
        raise UnsupportedError(
            f"{what}: a map with a null key, which columns cannot hold",
            kind="null-map-key",
            hint="statelib export --format typed-jsonl shows every value",
        )
    return pa.MapArray.from_arrays(pa.array(small_offsets(offsets, what)), keys, items, type=arrow_type)


def field_of_elements(lists: pa.ListArray, index: int) -> pa.ListArray:
    """Return the lists with a field of each of their elements, which are structs, in place of the elements."""
    lengths = pc.fill_null(pc.list_value_length(lists), 0).to_numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    elements = pc.struct_field(lists.flatten(), [index])
    return pa.ListArray.from_arrays(pa.array(offsets), elements, mask=lists.is_null())
