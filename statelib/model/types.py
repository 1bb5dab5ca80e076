"""The types a state can hold: closed, frozen, printable, and parsed back from their text.

The text form is what a checkpoint's manifest, the catalog and ``inspect`` show, for example
``row<flights: long, last_dest: string>``. Each type stands for exactly one Flink serializer
(flink-formats.md section 6), so the same type always has the same bytes.
"""

from dataclasses import dataclass, field, replace

from statelib.model.sql import LogicalType


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
"""``date`` LocalDate, ``time`` LocalTime, ``datetime`` LocalDateTime, ``instant`` Instant (UTC)."""

JAVA_SCALARS: dict[str, Scalar] = {
    name: Scalar(name) for name in ("char", "bigint", "bigdecimal", "javadate", "sqldate", "sqltime", "sqltimestamp")
}
STRING_VALUE = Scalar("stringvalue")
"""Flink's StringValue; its bytes are not those of a ``string``. It is the form of a :class:`Like` only."""
"""Those that only a Flink job brings along: ``char`` one unit of UTF-16, ``bigint`` BigInteger, ``bigdecimal``
BigDecimal, ``javadate`` java.util.Date, and the three of java.sql."""

BOOLEAN, BYTE, SHORT, INT, LONG = (SCALARS[n] for n in ("boolean", "byte", "short", "int", "long"))
FLOAT, DOUBLE, STRING, BYTES = (SCALARS[n] for n in ("float", "double", "string", "bytes"))
DATE, TIME, DATETIME, INSTANT, VOID = (SCALARS[n] for n in ("date", "time", "datetime", "instant", "void"))
CHAR, BIGINT, BIGDECIMAL = (JAVA_SCALARS[n] for n in ("char", "bigint", "bigdecimal"))

TIME_WINDOW, GLOBAL_WINDOW = Scalar("timewindow"), Scalar("globalwindow")
WINDOWS: dict[str, Scalar] = {type_.name: type_ for type_ in (TIME_WINDOW, GLOBAL_WINDOW)}
"""Flink's windows, namespaces of keyed state: ``timewindow`` [start, end) in ms, ``globalwindow`` says nothing."""


@dataclass(frozen=True)
class ArrayOf:
    """A Java primitive array (``long[]``), whose elements are never null, or ``String[]``, whose elements may be."""

    element: Scalar

    def __str__(self) -> str:
        return f"array<{self.element}>"


@dataclass(frozen=True)
class ListOf:
    """``java.util.List``: elements are never null."""

    element: "StateType"

    def __str__(self) -> str:
        return f"list<{self.element}>"


@dataclass(frozen=True)
class MapOf:
    """``java.util.Map``: keys are never null, values may be."""

    key: "StateType"
    value: "StateType"

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}>"


@dataclass(frozen=True)
class Tuple:
    """Flink's TupleN (1 to 25 fields, named f0, f1, ...): no field is ever null."""

    fields: tuple["StateType", ...]

    def __str__(self) -> str:
        return f"tuple<{', '.join(map(str, self.fields))}>"


@dataclass(frozen=True)
class Field:
    name: str
    type: "StateType"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


@dataclass(frozen=True)
class Row:
    """Flink's Row: any field may be null. Flink stores no field names; statelib's manifest does."""

    fields: tuple[Field, ...]

    def __str__(self) -> str:
        return f"row<{', '.join(map(str, self.fields))}>"


@dataclass(frozen=True)
class Ttl:
    """A value with the moment of its last access in front: how Flink keeps state that expires."""

    value: "StateType"

    def __str__(self) -> str:
        return f"ttl<{self.value}>"


@dataclass(frozen=True)
class ObjectArray:
    """A Java array of objects, which may be null; ``java_class`` is that of the elements."""

    java_class: str
    element: "StateType"

    def __str__(self) -> str:
        return f"objects<{self.java_class}; {self.element}>"


@dataclass(frozen=True)
class SetOf:
    """``java.util.Set`` (Flink 2): an element may be null."""

    element: "StateType"

    def __str__(self) -> str:
        return f"set<{self.element}>"


@dataclass(frozen=True)
class Enumeration:
    """A Java enum: ``constants`` as the snapshot lists them, which is the order of the indices in the values."""

    java_class: str
    constants: tuple[str, ...]

    def __str__(self) -> str:
        return f"enum<{self.java_class}; {', '.join(self.constants)}>"


@dataclass(frozen=True)
class Either:
    """Flink's ``Either``: a value of one of two types."""

    left: "StateType"
    right: "StateType"

    def __str__(self) -> str:
        return f"either<{self.left}, {self.right}>"


@dataclass(frozen=True)
class Nullable:
    """A value that may be null; a null takes ``padding`` bytes more than its flag, so that all values are as long."""

    element: "StateType"
    padding: int = 0

    def __str__(self) -> str:
        return f"nullable<{self.element}{f'; {self.padding}' if self.padding else ''}>"


@dataclass(frozen=True)
class Pojo:
    """A user's Java class, known by its fields: any may be null. ``registered`` and ``seen`` are its subclasses, those
    written as a number and those written by name; each with the fields of its own."""

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
    """A value that only a user's code can read: ``serializer`` is the class of its serializer, ``java_class`` that of
    the value where it is known. ``snapshot`` is what the header says of it, whole, to be written again as it is."""

    serializer: str
    java_class: str = ""
    snapshot: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"opaque<{self.serializer}{f'; {self.java_class}' if self.java_class else ''}>"


@dataclass(frozen=True)
class OneOf:
    """A byte and a value of the type that it stands for; ``cases``: (byte, type)."""

    cases: tuple[tuple[int, "StateType"], ...]

    def __str__(self) -> str:
        return f"oneof<{', '.join(f'{tag}: {type_}' for tag, type_ in self.cases)}>"


@dataclass(frozen=True)
class Like:
    """A value of another of Flink's serializers, whose bytes are those of the type ``form``. As a key it has a hash of
    its own. ``snapshot`` is what the header says of it, whole, to be written again as it is."""

    form: "StateType"
    serializer: str
    snapshot: bytes = field(default=b"", repr=False)

    def __str__(self) -> str:
        return f"like<{self.serializer}; {self.form}>"


@dataclass(frozen=True)
class Sql:
    """An internal value of Flink SQL; a ROW is what SQL's operators hold as state and as keys."""

    type: LogicalType

    def __str__(self) -> str:
        if self.type.root == "ROW" and self.type.nullable:
            return f"rowdata<{', '.join(map(str, self.type.parts))}>"
        return f"sql<{self.type}>"


StateType = (
    Scalar | ArrayOf | ListOf | MapOf | Tuple | Row | Ttl | Sql
    | ObjectArray | SetOf | Enumeration | Either | Nullable | Pojo | Opaque | OneOf | Like
)  # fmt: skip


def parts_of(kind: StateType) -> tuple[StateType, ...]:
    """Return the types that a type is made of, in the order of the bytes; none for Flink SQL's, which hold no foreign
    ones."""
    parts: tuple[StateType, ...] = ()
    match kind:
        case ListOf(part) | SetOf(part) | ObjectArray(_, part) | Nullable(part) | Ttl(part):
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
    """Return the same type made of other parts, as many as :func:`parts_of` names. Forms of Flink's own stay as they
    are: their bytes are those of a serializer that knows its parts."""
    match kind:
        case Row(fields):
            return Row(tuple(Field(field.name, part) for field, part in zip(fields, parts, strict=True)))
        case Pojo():
            return _pojo_with_parts(kind, parts)
        case Tuple():
            return Tuple(parts)
        case Nullable() | ObjectArray():
            return replace(kind, element=parts[0])
        case ListOf() | SetOf() | MapOf() | Either() | Ttl():
            return kind.__class__(*parts)
    return kind


def _pojo_with_parts(kind: Pojo, parts: tuple[StateType, ...]) -> Pojo:
    size, known = len(kind.fields), len(kind.registered)
    fields = tuple(Field(field.name, type_) for field, type_ in zip(kind.fields, parts[:size], strict=True))
    subclasses = tuple(part for part in parts[size:] if isinstance(part, Pojo))
    return Pojo(kind.java_class, fields, subclasses[:known], subclasses[known:])
