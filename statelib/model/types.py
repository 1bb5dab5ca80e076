"""The types a state can hold: closed, frozen, printable, and parsed back from their text.

The text form is what a checkpoint's manifest, the catalog and ``inspect`` show, for example
``row<flights: long, last_dest: string>``. Each type stands for exactly one Flink serializer
(flink-formats.md section 6), so the same type always has the same bytes.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Scalar:
    """A type without parts. ``name`` is one of :data:`SCALARS`."""

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

BOOLEAN, BYTE, SHORT, INT, LONG = (SCALARS[n] for n in ("boolean", "byte", "short", "int", "long"))
FLOAT, DOUBLE, STRING, BYTES = (SCALARS[n] for n in ("float", "double", "string", "bytes"))
DATE, TIME, DATETIME, INSTANT, VOID = (SCALARS[n] for n in ("date", "time", "datetime", "instant", "void"))


@dataclass(frozen=True)
class ArrayOf:
    """A Java primitive array (``long[]``): elements are never null."""

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


StateType = Scalar | ArrayOf | ListOf | MapOf | Tuple | Row
