"""Typed JSON lines: every entry of a state as one lossless, diffable line of text.

``{"op", "state", "kind", "key", "kg", "ns", ["uk" | "idx",] "value"}``; each value carries its
type: ``{"type": "long", "v": 7}``. Text is for people and for other programs, not a hot path.
"""

import json
import struct
from collections.abc import Callable, Iterator
from datetime import date
from typing import Any

import pyarrow as pa

from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import ArrayOf, ListOf, MapOf, Row, Scalar, StateType, Tuple

Json = dict[str, Any]

NULL: Json = {"type": "null"}


def entry_lines(operator: str, schema: KeyedStateSchema, descriptor: StateDescriptor, table: pa.Table) -> Iterator[str]:
    """One line an entry (an element, for list state) of ``table``: ``key_group, key[, user_key], value``."""
    key_of, value_of = typed(schema.key_type), typed(descriptor.value_type)
    user_key_of = typed(descriptor.user_key_type) if descriptor.user_key_type else None
    for batch in table.to_batches(max_chunksize=10_000):
        keys, values = _cells(batch["key"]), _cells(batch["value"])
        user_keys = _cells(batch["user_key"]) if user_key_of else [None] * len(keys)
        for group, key, user_key, value in zip(batch["key_group"].to_pylist(), keys, user_keys, values, strict=True):
            line: Json = {"op": operator, "state": descriptor.name, "kind": descriptor.kind.value}
            line |= {"key": key_of(key), "kg": group, "ns": None}
            if descriptor.kind is StateKind.LIST:
                for index, element in enumerate(value):
                    yield _text({**line, "idx": index, "value": value_of(element)})
                continue
            if user_key_of:
                line["uk"] = user_key_of(user_key)
            yield _text({**line, "value": value_of(value)})


def _text(line: Json) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def typed(kind: StateType) -> Callable[[Any], Json]:
    """The function that turns a Python value of this type (as :func:`_cells` gives it) into typed JSON."""
    render = _render(kind)
    return lambda value: NULL if value is None else render(value)


def _render(kind: StateType) -> Callable[[Any], Json]:
    if isinstance(kind, Scalar):
        name = kind.name
        special = _SCALARS.get(name)
        return special if special else lambda value: {"type": name, "v": value}
    if isinstance(kind, ArrayOf | ListOf):
        element = typed(kind.element)
        name = f"{kind.element}[]" if isinstance(kind, ArrayOf) else "list"
        return lambda value: {"type": name, "v": [element(item) for item in value]}
    if isinstance(kind, MapOf):
        key_of, value_of = typed(kind.key), typed(kind.value)
        return lambda value: {"type": "map", "v": [[key_of(k), value_of(v)] for k, v in value]}
    return _struct(kind)


def _struct(kind: Tuple | Row) -> Callable[[Any], Json]:
    if isinstance(kind, Tuple):
        parts = [typed(part) for part in kind.fields]
        name = f"tuple{len(parts)}"
        return lambda value: {"type": name, "v": [part(v) for part, v in zip(parts, value.values(), strict=True)]}
    fields = [typed(field.type) for field in kind.fields]
    return lambda value: {
        "type": "row",
        "kind": "+I",
        "v": [part(v) for part, v in zip(fields, value.values(), strict=True)],
    }


def _cells(column: pa.Array) -> list[Any]:
    """Python values without loss: every timestamp as integer nanoseconds, every struct as a dict."""
    return list(column.cast(_plain(column.type)).to_pylist())


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, _plain(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(_plain(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    return kind


def _instant(nanos: int) -> Json:
    seconds, nano = divmod(nanos, 1_000_000_000)
    return {"type": "instant", "sec": seconds, "nano": nano}


def _datetime(nanos: int) -> Json:
    days, nano = divmod(nanos, 86_400_000_000_000)
    return {"type": "localdatetime", "date": str(date.fromordinal(719_163 + days)), "nanoOfDay": nano}


_SCALARS: dict[str, Callable[[Any], Json]] = {
    "double": lambda v: {"type": "double", "v": repr(v), "bits": struct.pack(">d", v).hex()},
    "float": lambda v: {"type": "float", "v": repr(v), "bits": struct.pack(">f", v).hex()},
    "bytes": lambda v: {"type": "bytes", "hex": v.hex()},
    "date": lambda v: {"type": "localdate", "v": str(v)},
    "time": lambda v: {"type": "localtime", "nanoOfDay": v},
    "datetime": _datetime,
    "instant": _instant,
}
