"""Binary rows with everything that SQL can put into one; the fixtures hold little of it. All numbers little-endian."""

from statelib.model.state import KeyedStateSchema, StateDescriptor, StateKind
from statelib.model.types import LONG, Sql
from statelib.serializers.type_text import parse_type

ROW_TYPE = (
    "rowdata<a: DECIMAL(10, 2), b: DECIMAL(30, 5), c: ARRAY<INT>, d: MAP<VARCHAR(99), BIGINT>, e: TIMESTAMP(3), "
    "f: TIMESTAMP(9), g: ROW<x: INT, y: VARCHAR(9)>, h: VARBINARY(99), i: ARRAY<ARRAY<VARCHAR(9)>>, j: BOOLEAN, "
    "k: DOUBLE, l: MULTISET<INT>, m: DECIMAL(20, 0)>"
)


def number(value: int, size: int = 8) -> bytes:
    return value.to_bytes(size, "little", signed=value < 0)


def text(value: str) -> bytes:
    """Return the slot of a text of up to seven bytes, which contains the text itself."""
    data = value.encode()
    return data.ljust(7, b"\0") + bytes([0x80 | len(data)]) if len(data) <= 7 else data


def row(*parts: bytes | None) -> bytes:
    """Return the bytes of a row: a part of eight bytes is a slot, a longer one lies behind all slots, None is null."""
    head = (len(parts) + 63 + 8) // 64 * 8
    nulls = sum(1 << (8 + i) for i, part in enumerate(parts) if part is None)
    return number(nulls, head) + _slots(parts, head)


def array(*parts: bytes | None) -> bytes:
    bits = (len(parts) + 31) // 32 * 4
    nulls = sum(1 << i for i, part in enumerate(parts) if part is None)
    return number(len(parts), 4) + number(nulls, bits) + _slots(parts, 4 + bits)


def numbers(*values: int) -> bytes:
    """Return an array of INT."""
    return number(len(values), 4) + number(0, 4) + b"".join(number(v, 4) for v in values)


def entries(keys: bytes, values: bytes) -> bytes:
    """Return a map."""
    return number(len(keys), 4) + keys + values


def _slots(parts: tuple[bytes | None, ...], head: int) -> bytes:
    slots, outside = b"", b""
    for part in parts:
        if part is not None and len(part) == 8:
            slots += part
            continue
        slots += number(head + 8 * len(parts) + len(outside) << 32 | len(part)) if part else bytes(8)
        outside += (part or b"").ljust((len(part or b"") + 7) // 8 * 8, b"\0")
    return slots + outside


def sized(data: bytes) -> bytes:
    """Return the bytes with their size in front, which is how the serializer writes a row."""
    return len(data).to_bytes(4, "big") + data


def sample() -> tuple[KeyedStateSchema, bytes]:
    """Return a state of such rows, and one of them."""
    type_ = parse_type(ROW_TYPE)
    assert isinstance(type_, Sql)
    schema = KeyedStateSchema(LONG, 128, (StateDescriptor("rows", StateKind.VALUE, type_),))
    value = row(
        number(12345),
        (-(10**20)).to_bytes(16, "big", signed=True),
        numbers(1, 2, 3),
        entries(array(text("a"), text("longer than seven")), array(number(5), None)),
        number(1_700_000_000_000),
        number(1_700_000_000_000)[:7] + b"\0\0",  # The milliseconds lie outside, as eight bytes and an unused one.
        row(number(7), text("inside")),
        b"bytes of some length",
        array(array(text("x"), text("longer again")), None, array()),
        number(1),
        number(0x3FF0000000000000),
        entries(numbers(4, 5), numbers(1, 1)),
        None,
    )
    return schema, sized(value)
