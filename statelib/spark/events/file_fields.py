"""The columns of files of Parquet and ORC, and the fields in them: their names, and the types in which Spark reads
them.

Spark's reader of Parquet takes the stored bits of numbers and times for those of another type. Its reader of ORC
converts values, and makes nulls of those that it cannot convert.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import types as t

from statelib.spark.events.source_paths import open_file
from statelib.spark.events.source_types import is_misread, is_read_as, parquet_type

Path = tuple[str, ...]
"""The names from a column to a field in it. ``[]`` leads to the elements of a list, ``[key]`` and ``[value]`` to those
of a map."""
_ELEMENT, _KEY, _VALUE = "[]", "[key]", "[value]"
_NUMBERS_IN_ORC = ("time", "interval")
"""The beginnings of the names of types whose values Spark stores as numbers in ORC, such as ``timestamp_ntz``."""
_UNSIGNED = {pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)"}


@dataclass(frozen=True)
class FileFormat:
    """A format whose files can be compared. ``fields`` returns the type in which Spark reads each field of a file
    alone; '' if it is not certain. ``is_misread`` says whether Spark may read values of the first type as other values
    of the second, without an error."""

    fields: Callable[[str], dict[Path, str]]
    is_misread: Callable[[str, str], bool]


def _of_parquet(path: str) -> dict[Path, str]:
    """Return the type of each field of a file. It is not certain for times in nanoseconds, as those of INT96, which may
    be local ones."""
    with pq.ParquetFile(open_file(path)) as file:
        return _of_arrow(file.schema_arrow)


def _of_orc(path: str) -> dict[Path, str]:
    """Return the type of each field of a file. It is not certain for times."""
    from pyarrow import orc  # few pipelines need it

    return _of_arrow(orc.ORCFile(open_file(path)).schema)


def fields_of(file_format: FileFormat, path: str) -> dict[Path, str] | None:
    """Return the type of each field of a file; None if it has no content, in which case Spark does not read it."""
    try:
        return file_format.fields(path)
    except pa.ArrowException:
        opened = open_file(path)
        with open(opened, "rb") if isinstance(opened, str) else opened as file:
            if file.read(1):
                raise
        return None


def of_spark(schema: t.StructType) -> dict[Path, str]:
    """Return the type of each field of a DataFrame."""
    return {field: each.simpleString() for field, each in _fields((), schema, _in_spark)}


def lower(field: Path) -> Path:
    """Return a path in small letters: Spark does not distinguish capital letters."""
    return tuple(map(str.lower, field))


def shown(field: Path) -> str:
    """Return a path as messages show it: ``items[].price``."""
    return ".".join(field).replace(".[", "[")


def is_step(name: str) -> bool:
    """Return whether a part of a path is not a name, but leads into a list or a map."""
    return name in (_ELEMENT, _KEY, _VALUE)


def _is_converted(actual: str, wanted: str) -> bool:
    is_known = actual != "" and wanted != "" and not wanted.startswith(_NUMBERS_IN_ORC)
    return is_known and not is_read_as(actual, wanted)


FORMATS: Mapping[str, FileFormat] = {
    "parquet": FileFormat(_of_parquet, is_misread),
    "orc": FileFormat(_of_orc, _is_converted),
}
"""The formats whose files can be compared, by their names in small letters."""


def _of_arrow(schema: pa.Schema) -> dict[Path, str]:
    fields = _fields((), pa.struct(schema), _in_arrow)
    return {field: _UNSIGNED.get(each) or parquet_type(each) for field, each in fields}


def _fields(path: Path, type_: Any, inner: Callable[[Any], Sequence[tuple[str, Any]]]) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the type of each field in a type. ``inner`` returns those that are directly in it."""
    for name, each in inner(type_):
        yield (*path, name), each
        yield from _fields((*path, name), each, inner)


def _in_arrow(type_: pa.DataType) -> list[tuple[str, pa.DataType]]:
    if pa.types.is_struct(type_):
        return [(field.name, field.type) for field in type_.fields]
    if pa.types.is_map(type_):
        return [(_KEY, type_.key_type), (_VALUE, type_.item_type)]
    is_list = pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_)
    return [(_ELEMENT, type_.value_type)] if is_list else []


def _in_spark(type_: t.DataType) -> list[tuple[str, t.DataType]]:
    if isinstance(type_, t.StructType):
        return [(field.name, field.dataType) for field in type_.fields]
    if isinstance(type_, t.MapType):
        return [(_KEY, type_.keyType), (_VALUE, type_.valueType)]
    return [(_ELEMENT, type_.elementType)] if isinstance(type_, t.ArrayType) else []
