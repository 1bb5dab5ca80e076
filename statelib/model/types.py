"""The types of keys and values in state: a closed set of frozen classes with a text form that can be parsed back.

The manifest of a checkpoint, the catalog and ``inspect`` show the text form, for example
``row<flights: long, last_dest: string>``. Each type stands for exactly one Flink serializer
(docs/spec/formats.md#serializer-snapshots), so the same type always has the same bytes.
"""

from dataclasses import dataclass, field, replace

from statelib.model.sql import MAX_DIGITS, LogicalType


@dataclass(frozen=True)
class Scalar:
    """A type without parts. ``name`` is one of :data:`SCALARS` or :data:`JAVA_SCALARS`."""

    name: str

    def __str__(self) -> str:
        return self.name


SCALARS: dict[str, Scalar] = {
    name: Scalar(name)
    for name in (
        "boolean", "byte", "short", "int", "long", "float", "double", "string", "bytes",
        "date", "time", "datetime", "instant", "void",
    )
}  # fmt: skip
"""The scalar types that pipeline files can name. Java's classes: ``date`` is LocalDate, ``time`` LocalTime,
``datetime`` LocalDateTime, ``instant`` Instant (UTC)."""

JAVA_SCALARS: dict[str, Scalar] = {
    name: Scalar(name) for name in ("char", "bigint", "bigdecimal", "javadate", "sqldate", "sqltime", "sqltimestamp")
}
"""The scalar types that occur only in state of Flink jobs: ``char`` is one UTF-16 code unit, ``bigint`` BigInteger,
``bigdecimal`` BigDecimal, ``javadate`` java.util.Date; the other three are the classes of java.sql."""
STRING_VALUE = Scalar("stringvalue")
"""Flink's StringValue, whose bytes differ from those of a ``string``. It occurs only as ``form`` of a :class:`Like`."""

BOOLEAN, BYTE, SHORT, INT, LONG = (SCALARS[n] for n in ("boolean", "byte", "short", "int", "long"))
FLOAT, DOUBLE, STRING, BYTES = (SCALARS[n] for n in ("float", "double", "string", "bytes"))
DATE, TIME, DATETIME, INSTANT, VOID = (SCALARS[n] for n in ("date", "time", "datetime", "instant", "void"))
CHAR, BIGINT, BIGDECIMAL = (JAVA_SCALARS[n] for n in ("char", "bigint", "bigdecimal"))

TIME_WINDOW, GLOBAL_WINDOW = Scalar("timewindow"), Scalar("globalwindow")
WINDOWS: dict[str, Scalar] = {type_.name: type_ for type_ in (TIME_WINDOW, GLOBAL_WINDOW)}
"""Flink's window types, used as namespaces of keyed state: ``timewindow`` is [start, end) in milliseconds,
``globalwindow`` is the single window without bounds."""


@dataclass(frozen=True)
class Decimal:
    """An exact decimal number of at most ``precision`` digits, ``scale`` of them after the point. In Flink each value
    is a BigDecimal of this scale. :class:`Sql` has the other form of such numbers, the DECIMAL of Flink SQL."""

    precision: int
    scale: int

    def __str__(self) -> str:
        return f"decimal({self.precision}, {self.scale})"


@dataclass(frozen=True)
class ArrayOf:
    """A Java primitive array (``long[]``), whose elements are never null, or ``String[]``, whose elements may be."""

    element: Scalar

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class ListOf:
    """A ``java.util.List``. Its elements are never null."""

    element: "StateType"

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True)
class MapOf:
    """A ``java.util.Map``. Its keys are never null; its values may be null."""

    key: "StateType"
    value: "StateType"

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True)
class Tuple:
    """Flink's TupleN, with 1 to 25 fields named f0, f1, ... No field is ever null."""

    fields: tuple["StateType", ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.fields))}>"


@dataclass(frozen=True)
class Field:
    """A named field of a :class:`Row` or :class:`Pojo`."""

    name: str
    type: "StateType"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True)
class Row:
    """Flink's Row. Any field may be null. Flink stores no field names; statelib's manifest stores them."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"row<{', '.join(map(str, self.fields))}>"


@dataclass(frozen=True)
class Ttl:
    """A value preceded by the time of its last access: the form in which Flink stores state with a time to live."""

    value: "StateType"

    def __str__(self) -> str:
        return f"ttl<{self.value}>"


@dataclass(frozen=True)
class ObjectArray:
    """A Java array of objects, any of which may be null. ``java_class`` is the class of the elements."""

    java_class: str
    element: "StateType"

    def __str__(self) -> str:
        return f"objects<{self.java_class}; {self.element}>"


@dataclass(frozen=True)
class SetOf:
    """A ``java.util.Set`` (Flink 2). An element may be null."""

    element: "StateType"

    def __str__(self) -> str:
        return f"set<{self.element}>"


@dataclass(frozen=True)
class Enumeration:
    """A Java enum. A value is stored as an index into ``constants``, which are in the order of the serializer
    snapshot."""

    java_class: str
    constants: tuple[str, ...]

    def __str__(self) -> str:
        return f"enum<{self.java_class}; {', '.join(self.constants)}>"


@dataclass(frozen=True)
class Either:
    """Flink's ``Either``, a value of one of two types."""

    left: "StateType"
    right: "StateType"

    def __str__(self) -> str:
        return f"either<{self.left}, {self.right}>"


@dataclass(frozen=True)
class Nullable:
    """A value that may be null. A null is stored as its flag and ``padding`` bytes, so that nulls are as long as
    values."""

    element: "StateType"
    padding: int = 0

    def __str__(self) -> str:
        return f"nullable<{self.element}{f'; {self.padding}' if self.padding else ''}>"


@dataclass(frozen=True)
class Option:
    """Scala's ``Option``. A value is stored after a flag that is 1; the flag 0 stands for none."""

    element: "StateType"

    def __str__(self) -> str:
        return f"option<{self.element}>"


@dataclass(frozen=True)
class Pojo:
    """A user's Java class, described by its fields. Any field may be null. ``registered``: subclasses whose values are
    written with a number; ``seen``: subclasses whose values are written with the class name. Each has its own
    fields."""

    java_class: str
    fields: tuple[Field, ...]
    registered: tuple["Pojo", ...] = ()
    seen: tuple["Pojo", ...] = ()

    def __str__(self) -> str:
        fields = ", ".join(map(str, self.fields))
        subclasses = "".join([*(f"; +{p}" for p in self.registered), *(f"; -{p}" for p in self.seen)])
        return f"pojo<{self.java_class}; {fields}{subclasses}>"


@dataclass(frozen=True)
class Opaque:
    """A value that only a user's code can read. ``serializer``: the class of its serializer; ``java_class``: the class
    of the value, '' if the snapshot does not name it. ``snapshot``: the bytes of the whole serializer snapshot, which
    are written again unchanged."""

    serializer: str
    java_class: str = ""
    snapshot: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"opaque<{self.serializer}{f'; {self.java_class}' if self.java_class else ''}>"


@dataclass(frozen=True)
class OneOf:
    """A tag byte followed by a value of the type that the tag selects. ``cases``: (tag, type)."""

    cases: tuple[tuple[int, "StateType"], ...]

    def __str__(self) -> str:
        return f"oneof<{', '.join(f'{tag}: {type_}' for tag, type_ in self.cases)}>"


@dataclass(frozen=True)
class Like:
    """A value of another Flink serializer that writes the same bytes as the type ``form``. As a key it may have
    another hash code. ``snapshot``: the bytes of the whole serializer snapshot, which are written again unchanged."""

    form: "StateType"
    serializer: str
    snapshot: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"like<{self.serializer}; {self.form}>"


@dataclass(frozen=True)
class Sql:
    """An internal value of Flink SQL. The operators of Flink SQL use a ROW for their keys and most of their state."""

    type: LogicalType

    def __str__(self) -> str:
        if self.type.root == "ROW" and self.type.nullable:
            return f"rowdata<{', '.join(map(str, self.type.parts))}>"
        return f"sql<{self.type}>"


StateType = (
    Scalar | Decimal | ArrayOf | ListOf | MapOf | Tuple | Row | Ttl | Sql
    | ObjectArray | SetOf | Enumeration | Either | Nullable | Option | Pojo | Opaque | OneOf | Like
)  # fmt: skip


def decimal_digits(kind: StateType) -> tuple[int, int] | None:
    """Return the precision and the scale of a decimal type, in either of its forms; None for all other types."""
    match kind:
        case Decimal(precision, scale):
            return precision, scale
        case Sql(LogicalType(root="DECIMAL", parameters=(precision, scale))):
            return precision, scale
    return None


def widest_decimal(kind: StateType) -> StateType | None:
    """Return the decimal type with the same scale and form and the most digits; None if the type is no decimal."""
    digits = decimal_digits(kind)
    if digits is None:
        return None
    sql = LogicalType("DECIMAL", parameters=(MAX_DIGITS, digits[1]))
    return Sql(sql) if isinstance(kind, Sql) else Decimal(MAX_DIGITS, digits[1])


def parts_of(kind: StateType) -> tuple[StateType, ...]:
    """Return the types that a type is made of, in the order of their bytes. A :class:`Sql` type has no such parts."""
    parts: tuple[StateType, ...] = ()
    match kind:
        case ListOf(part) | SetOf(part) | ObjectArray(_, part) | Nullable(part) | Option(part) | Ttl(part):
            parts = (part,)
        case MapOf(first, second) | Either(first, second):
            parts = (first, second)
        case Like(form):
            parts = (form,)
        case OneOf(cases):
            parts = tuple(type_ for _, type_ in cases)
        case Tuple(fields):
            parts = fields
        case Row(named):
            parts = tuple(field.type for field in named)
        case Pojo(_, named, registered, seen):
            parts = (*(field.type for field in named), *registered, *seen)
    return parts


def with_parts(kind: StateType, parts: tuple[StateType, ...]) -> StateType:
    """Return the type with other parts, in number and order those of :func:`parts_of`. A :class:`OneOf` or
    :class:`Like` is returned unchanged, because its serializer is written for exactly its parts."""
    match kind:
        case Row(fields):
            return Row(tuple(Field(field.name, part) for field, part in zip(fields, parts, strict=True)))
        case Pojo():
            return _pojo_with_parts(kind, parts)
        case Tuple():
            return Tuple(parts)
        case Nullable() | ObjectArray():
            return replace(kind, element=parts[0])
        case ListOf() | SetOf() | MapOf() | Either() | Option() | Ttl():
            return kind.__class__(*parts)
    return kind


def _pojo_with_parts(kind: Pojo, parts: tuple[StateType, ...]) -> Pojo:
    field_count, registered_count = len(kind.fields), len(kind.registered)
    fields = tuple(Field(field.name, type_) for field, type_ in zip(kind.fields, parts[:field_count], strict=True))
    subclasses = tuple(part for part in parts[field_count:] if isinstance(part, Pojo))
    return Pojo(kind.java_class, fields, subclasses[:registered_count], subclasses[registered_count:])
