"""One value at a time, without loss: serialized bytes to typed JSON, for every type that a Flink job can store.

Columns cannot hold all of it (a Row's kind, the year 1,000,000, half a surrogate pair); text can. This is for people
and for comparing, not a hot path.

Source: flink-formats.md section 6; the members are those of the fixtures' truth.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.model.types import (
    ArrayOf,
    Either,
    Enumeration,
    Like,
    ListOf,
    MapOf,
    Nullable,
    ObjectArray,
    OneOf,
    Opaque,
    Pojo,
    Row,
    Scalar,
    SetOf,
    Sql,
    StateType,
    Ttl,
    Tuple,
    parts_of,
)
from statelib.serializers.java.decoders import decoder_of
from statelib.serializers.scalars.typed_json import SCALAR_READERS
from statelib.serializers.sql.typed_json import read_sql
from statelib.wire.json_text import json_text
from statelib.wire.reader import Reader

Json = dict[str, Any]
Read = Callable[[Reader], Json]

NULL: Json = {"type": "null"}
_KINDS = ("+I", "-U", "+U", "-D")
_ARRAY_NAMES = {"string": "String"}
_POJO_NULL, _POJO_SELF, _POJO_SEEN, _POJO_REGISTERED = 1, 2, 4, 8


def exact(type: StateType) -> Read:  # noqa: A002
    """The function that reads one value of the type and gives its typed JSON.

    It raises CorruptStateError where the bytes are none of the type. An opaque value takes all that is left: nothing
    says where it ends. A value with such a part before its end is opaque as a whole."""
    inner = opaque_part(type)
    if inner is None or _is_last(type):
        return _READERS[type.__class__](type)
    return partial(_opaque, inner)


def ends_by_itself(type: StateType) -> bool:  # noqa: A002
    """Whether the bytes of a value say where they end."""
    return opaque_part(type) is None


def opaque_part(type: StateType) -> Opaque | None:  # noqa: A002
    """The first part that nobody here can read, None where all can be."""
    if isinstance(type, Opaque):
        return type if decoder_of(type) is None else None
    return next((found for part in parts_of(type) if (found := opaque_part(part)) is not None), None)


def _is_last(type: StateType) -> bool:  # noqa: A002
    """Whether what nobody can read is all that a value ends with."""
    if isinstance(type, Opaque | Ttl | Nullable):
        return isinstance(type, Opaque) or _is_last_or_none(type.value if isinstance(type, Ttl) else type.element)
    if isinstance(type, Either):
        return _is_last_or_none(type.left) and _is_last_or_none(type.right)
    return False


def _is_last_or_none(type: StateType) -> bool:  # noqa: A002
    return opaque_part(type) is None or _is_last(type)


def _simple_name(java_class: str) -> str:
    return java_class.replace("$", ".").rpartition(".")[2]


def _sequence(name: str, element: Read, reader: Reader) -> Json:
    return {"type": name, "v": [element(reader) for _ in range(reader.count(1))]}


def _unless(null: bool, value: Read, reader: Reader) -> Json:
    """A flag in front says whether there is a value; ``null``: what the flag is where there is none."""
    return NULL if reader.bool() is null else value(reader)


def _timed(value: Read, reader: Reader) -> Json:
    """The natural value, without the moment of its last access."""
    reader.i64()
    return value(reader)


def _set(element: Read, reader: Reader) -> Json:
    return {"type": "set", "v": sorted((element(reader) for _ in range(reader.count(1))), key=_text_order)}


def _map(key: Read, value: Read, reader: Reader) -> Json:
    """Entries in the order of their text: a Java map has none of its own."""
    pairs = [[key(reader), value(reader)] for _ in range(reader.count(1))]
    return {"type": "map", "v": sorted(pairs, key=_text_order)}


def _text_order(value: object) -> bytes:
    """Sorts as Java sorts text: by units of UTF-16."""
    return json_text(value).encode("utf-16-be", "surrogatepass")


def _tuple(fields: tuple[Read, ...], reader: Reader) -> Json:
    return {"type": f"tuple{len(fields)}", "v": [field(reader) for field in fields]}


def _row(fields: tuple[Read, ...], reader: Reader) -> Json:
    """A mask in front: two bits of the kind, low one first, then a bit for each field that is null."""
    bits = [byte >> shift & 1 for byte in reader.take((len(fields) + 9) // 8) for shift in range(7, -1, -1)]
    values = [NULL if null else field(reader) for field, null in zip(fields, bits[2:], strict=False)]
    return {"type": "row", "kind": _KINDS[bits[0] + 2 * bits[1]], "v": values}


def _enumeration(kind: Enumeration, reader: Reader) -> Json:
    at, index = reader.offset, reader.i32()
    if not 0 <= index < len(kind.constants):
        raise CorruptStateError(
            f"{reader.what} at offset {at}: expected one of the {len(kind.constants)} constants of {kind.java_class}, "
            f"found index {index}",
            kind="bad-enum",
        )
    return {"type": "enum", "v": kind.constants[index], "ordinal": index}


def _either(left: Read, right: Read, reader: Reader) -> Json:
    is_left = reader.bool()
    return {"type": "either", "side": "left" if is_left else "right", "v": (left if is_left else right)(reader)}


def _one_of(cases: dict[int, Read], reader: Reader) -> Json:
    at, tag = reader.offset, reader.u8()
    if tag not in cases:
        raise CorruptStateError(
            f"{reader.what} at offset {at}: expected one of the tags {sorted(cases)}, found {tag}", kind="bad-tag"
        )
    return {"type": "oneof", "tag": tag, "v": cases[tag](reader)}


def _nullable(padding: int, element: Read, reader: Reader) -> Json:
    if reader.bool():
        reader.take(padding)
        return NULL
    return element(reader)


class _Pojo:
    """Reads values of a class and of its subclasses; each says in a byte in front which it is."""

    def __init__(self, kind: Pojo) -> None:
        self.kind = kind
        self.fields = [(field.name, exact(field.type)) for field in kind.fields]
        self.registered = [_Pojo(subclass) for subclass in kind.registered]
        self.seen = {subclass.java_class: _Pojo(subclass) for subclass in kind.seen}

    def __call__(self, reader: Reader) -> Json:
        at, flags = reader.offset, reader.u8()
        if flags == _POJO_NULL:
            return NULL
        if flags == _POJO_REGISTERED:
            tag = reader.u8()
            if tag < len(self.registered):
                return self.registered[tag](reader)
        elif flags == _POJO_SEEN:
            name = reader.utf()
            if name in self.seen:
                return self.seen[name](reader)
            raise UnsupportedError(
                f"{reader.what} at offset {at}: the snapshot says nothing of {name}, a subclass of "
                f"{self.kind.java_class}",
                kind="unknown-subclass",
            )
        elif flags == _POJO_SELF:
            values = {name: NULL if reader.bool() else read(reader) for name, read in self.fields}
            return {"type": "pojo", "class": self.kind.java_class, "v": values}
        raise CorruptStateError(
            f"{reader.what} at offset {at}: expected a value of {self.kind.java_class}, found flags {flags:#04x}",
            kind="bad-pojo",
        )


def _opaque(kind: Opaque, reader: Reader) -> Json:
    """What a registered decoder makes of it, else all that is left."""
    decoder = decoder_of(kind)
    if decoder is not None:
        return {"type": "decoded", "class": kind.java_class or kind.serializer, "v": decoder(reader)}
    return {"type": "opaque", "serializer": kind.serializer, "hex": bytes(reader.take(reader.remaining)).hex()}


def _array(kind: ArrayOf) -> Read:
    element = exact(kind.element)
    return partial(_sequence, f"{_ARRAY_NAMES.get(kind.element.name, kind.element.name)}[]", element)


def _objects(kind: ObjectArray) -> Read:
    return partial(_sequence, f"{_simple_name(kind.java_class)}[]", partial(_unless, False, exact(kind.element)))


_READERS: dict[Any, Callable[[Any], Read]] = {
    Scalar: lambda kind: SCALAR_READERS[kind.name],
    ArrayOf: _array,
    ListOf: lambda kind: partial(_sequence, "list", exact(kind.element)),
    ObjectArray: _objects,
    SetOf: lambda kind: partial(_set, partial(_unless, True, exact(kind.element))),
    MapOf: lambda kind: partial(_map, exact(kind.key), partial(_unless, True, exact(kind.value))),
    Tuple: lambda kind: partial(_tuple, tuple(map(exact, kind.fields))),
    Row: lambda kind: partial(_row, tuple(exact(field.type) for field in kind.fields)),
    Enumeration: lambda kind: partial(_enumeration, kind),
    Either: lambda kind: partial(_either, exact(kind.left), exact(kind.right)),
    Nullable: lambda kind: partial(_nullable, kind.padding, exact(kind.element)),
    Pojo: _Pojo,
    OneOf: lambda kind: partial(_one_of, {tag: exact(type_) for tag, type_ in kind.cases}),
    Like: lambda kind: exact(kind.form),
    Sql: lambda kind: partial(read_sql, kind.type),
    Opaque: lambda kind: partial(_opaque, kind),
    Ttl: lambda kind: partial(_timed, exact(kind.value)),
}
