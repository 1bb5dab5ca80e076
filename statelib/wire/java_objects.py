"""A reader and a writer of Java object serialization, as far as type descriptions need it: streams of one object.

No class is loaded and no code is run: an object is the name of its class and the values of its fields.

Source: the Java Object Serialization Specification, chapter 6; docs/spec/formats.md#sql-types.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from statelib.errors import CorruptStateError, UnsupportedError
from statelib.wire.reader import Reader
from statelib.wire.writer import Writer

STREAM_HEAD = 0xACED0005
_NULL, _REFERENCE, _CLASS_DESCRIPTION, _OBJECT, _STRING, _ARRAY, _CLASS = range(0x70, 0x77)
_BLOCK, _END, _LONG_BLOCK, _ENUM = 0x77, 0x78, 0x7A, 0x7E
_WRITE_METHOD, _SERIALIZABLE, _WRITES_ITSELF, _IN_BLOCKS, _ENUM_FLAG = 0x01, 0x02, 0x04, 0x08, 0x10
_FIRST_HANDLE = 0x7E0000
MAX_DEPTH = 64


@dataclass(frozen=True)
class JavaClass:
    """The description of a Java class.

    ``fields``: (type code, name, signature); the signature is '' unless the code is ``L`` or ``[``. ``uid``: the serial
    version.
    """

    name: str
    uid: int
    flags: int
    fields: tuple[tuple[str, str, str], ...]
    parent: "JavaClass | None" = None

    def chain(self) -> "list[JavaClass]":
        """Return the class and its parents, the topmost parent first."""
        return [*(self.parent.chain() if self.parent else []), self]


@dataclass
class JavaObject:
    """A Java object.

    ``values``: the values of all fields by name, parents' fields included. ``written``: per class with a write method
    of its own, the content that the method wrote.
    """

    type: JavaClass
    values: dict[str, Any] = field(default_factory=dict)
    written: dict[str, list[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class JavaClassValue:
    """A Java class as a value, for example the class in which a serialized lambda was defined."""

    type: JavaClass


@dataclass(frozen=True)
class JavaEnum:
    """A constant of a Java enum."""

    type: JavaClass
    constant: str


def read_object(reader: Reader) -> Any:
    """Read a stream of one object: a :class:`JavaObject`, an enum constant, a class, a list, a text, bytes or None.

    Raise CorruptStateError (``bad-java-object``) and UnsupportedError (``java-object``), naming the offset.
    """
    at, head = reader.offset, reader.u32("start of a Java object")
    if head != STREAM_HEAD:
        raise CorruptStateError(f"{reader.what} at offset {at}: no stream of a Java object", kind="bad-java-object")
    return _Parser(reader).content(0)


class _Parser:
    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.handles: list[Any] = []
        self.kinds: dict[int, Callable[[int], Any]] = {
            _NULL: lambda depth: None,  # noqa: ARG005
            _REFERENCE: self.reference,
            _CLASS_DESCRIPTION: self.class_description,
            _OBJECT: self.object,
            _STRING: self.string,
            _ARRAY: self.array,
            _BLOCK: lambda depth: bytes(self.reader.take(self.reader.u8("length"), "block")),  # noqa: ARG005
            _LONG_BLOCK: lambda depth: bytes(self.reader.take(self.reader.count(name="length"), "block")),  # noqa: ARG005
            _ENUM: self.enum,
            _CLASS: self.class_value,
        }
        self.primitives: dict[str, Callable[[], Any]] = {
            "B": reader.i8, "C": reader.u16, "D": reader.f64, "F": reader.f32, "I": reader.i32, "J": reader.i64,
            "S": reader.i16, "Z": reader.bool,
        }  # fmt: skip

    def content(self, depth: int) -> Any:
        at, mark = self.reader.offset, self.reader.u8("mark")
        read = self.kinds.get(mark)
        if read is None:
            raise UnsupportedError(
                f"{self.reader.what} at offset {at}: {mark:#04x} in a Java object is not read", kind="java-object"
            )
        if depth > MAX_DEPTH:
            raise self.bad("objects of some depth", f"more than {MAX_DEPTH}")
        return read(depth + 1)

    def reference(self, depth: int) -> Any:  # noqa: ARG002
        handle = self.reader.i32("handle") - _FIRST_HANDLE
        if not 0 <= handle < len(self.handles):
            raise self.bad(f"a handle of {len(self.handles)} objects", str(handle))
        return self.handles[handle]

    def string(self, depth: int) -> str:  # noqa: ARG002
        text = self.reader.utf("text")
        self.handles.append(text)
        return text

    def description(self, depth: int) -> JavaClass | None:
        described = self.content(depth)
        if described is not None and not isinstance(described, JavaClass):
            raise self.bad("a class", type(described).__name__)
        return described

    def class_description(self, depth: int) -> JavaClass:
        name, uid = self.reader.utf("class"), self.reader.i64("serial version")
        handle = len(self.handles)
        self.handles.append(None)
        flags = self.reader.u8("flags")
        fields = tuple(self.field(depth) for _ in range(self.reader.u16("fields")))
        self.annotation(depth)
        self.handles[handle] = described = JavaClass(name, uid, flags, fields, self.description(depth))
        return described

    def class_value(self, depth: int) -> JavaClassValue:
        class_value = JavaClassValue(self.needed(depth))
        self.handles.append(class_value)
        return class_value

    def field(self, depth: int) -> tuple[str, str, str]:
        code, name = chr(self.reader.u8("type")), self.reader.utf("field")
        if code in self.primitives:
            return code, name, ""
        if code not in "L[":
            raise self.bad("the code of a field's type", repr(code))
        return code, name, self.text(depth)

    def text(self, depth: int) -> str:
        """Read a string. Raise CorruptStateError (``bad-java-object``) for any other object, whose text could be of any
        length."""
        text = self.content(depth)
        if not isinstance(text, str):
            raise self.bad("a string", type(text).__name__)
        return text

    def annotation(self, depth: int) -> list[Any]:
        """Read all items up to the end mark."""
        items = []
        while self.reader.remaining and self.peek() != _END:
            items.append(self.content(depth))
        self.reader.u8()
        return items

    def peek(self) -> int:
        return self.reader.peek()

    def object(self, depth: int) -> JavaObject:
        description = self.needed(depth)
        java_object = JavaObject(description)
        self.handles.append(java_object)
        for part in description.chain():
            if part.flags & _WRITES_ITSELF and part.flags & _IN_BLOCKS:
                java_object.written[part.name] = self.annotation(depth)
                continue
            if not part.flags & _SERIALIZABLE:
                raise UnsupportedError(
                    f"{self.reader.what} before offset {self.reader.offset}: class {part.name[:200]} writes itself",
                    kind="java-object",
                )
            for code, name, _ in part.fields:
                java_object.values[name] = self.value(code, depth)
            if part.flags & _WRITE_METHOD:
                java_object.written[part.name] = self.annotation(depth)
        return java_object

    def needed(self, depth: int) -> JavaClass:
        description = self.description(depth)
        if description is None:
            raise self.bad("a class", "none")
        return description

    def enum(self, depth: int) -> JavaEnum:
        description = self.needed(depth)
        handle = len(self.handles)
        self.handles.append(None)
        self.handles[handle] = constant = JavaEnum(description, self.text(depth))
        return constant

    def array(self, depth: int) -> list[Any]:
        description = self.needed(depth)
        items: list[Any] = []
        self.handles.append(items)
        items.extend(self.value(description.name[1:2], depth) for _ in range(self.reader.count(name="elements")))
        return items

    def value(self, code: str, depth: int) -> Any:
        primitive = self.primitives.get(code)
        return primitive() if primitive else self.content(depth)

    def bad(self, expected: str, actual: str) -> CorruptStateError:
        return CorruptStateError(
            f"{self.reader.what} before offset {self.reader.offset}: expected {expected}, found {actual}",
            kind="bad-java-object",
        )


def write_object(writer: Writer, value: Any) -> None:
    """Write a stream of one object; the inverse of :func:`read_object`."""
    writer.u32(STREAM_HEAD)
    _Printer(writer).content(value)


class _Printer:
    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.handles: dict[object, int] = {}
        self.count = 0

    def content(self, value: Any) -> None:
        if value is None:
            self.writer.u8(_NULL)
        elif isinstance(value, bytes):
            self.writer.u8(_BLOCK)
            self.writer.u8(len(value))
            self.writer.put(value)
        elif not self.written_before(value):
            _WRITERS[type(value)](self, value)

    def written_before(self, value: Any) -> bool:
        """Write a reference if the value was written before, and return whether it was.

        Strings, classes and enum constants are written once; objects are always written again.
        """
        if isinstance(value, JavaObject) or value not in self.handles:
            return False
        self.writer.u8(_REFERENCE)
        self.writer.i32(_FIRST_HANDLE + self.handles[value])
        return True

    def number(self, value: Any) -> None:
        if not isinstance(value, JavaObject):
            self.handles[value] = self.count
        self.count += 1

    def string(self, value: str) -> None:
        self.number(value)
        self.writer.u8(_STRING)
        self.writer.utf(value)

    def description(self, value: JavaClass) -> None:
        self.writer.u8(_CLASS_DESCRIPTION)
        self.writer.utf(value.name)
        self.writer.i64(value.uid)
        self.number(value)
        self.writer.u8(value.flags)
        self.writer.u16(len(value.fields))
        for code, name, signature in value.fields:
            self.writer.u8(ord(code))
            self.writer.utf(name)
            if signature:
                self.content(signature)
        self.writer.u8(_END)
        self.content(value.parent)

    def object(self, value: JavaObject) -> None:
        self.writer.u8(_OBJECT)
        self.content(value.type)
        self.number(value)
        for part in value.type.chain():
            for code, name, _ in part.fields:
                self.value(code, value.values[name])
            if part.flags & _WRITE_METHOD:
                for item in value.written[part.name]:
                    self.content(item)
                self.writer.u8(_END)

    def value(self, code: str, value: Any) -> None:
        numbers: dict[str, Callable[[int], None]] = {"I": self.writer.i32, "J": self.writer.i64, "Z": self.writer.u8}
        if code in numbers:
            numbers[code](value)
        else:
            self.content(value)

    def enum(self, value: JavaEnum) -> None:
        self.writer.u8(_ENUM)
        self.content(value.type)
        self.number(value)
        self.content(value.constant)


_WRITERS: dict[type, Callable[[_Printer, Any], None]] = {
    str: _Printer.string,
    JavaClass: _Printer.description,
    JavaObject: _Printer.object,
    JavaEnum: _Printer.enum,
}


def enum_of(name: str, constant: str) -> JavaEnum:
    """Return a constant of a Java enum, given the name of the enum class."""
    base = JavaClass("java.lang.Enum", 0, _SERIALIZABLE | _ENUM_FLAG, ())
    return JavaEnum(JavaClass(name, 0, _SERIALIZABLE | _ENUM_FLAG, (), base), constant)


def array_list(items: list[Any]) -> JavaObject:
    """Return a ``java.util.ArrayList`` with these items."""
    size = ("I", "size", "")
    type_ = JavaClass("java.util.ArrayList", 0x7881D21D99C7619D, _SERIALIZABLE | _WRITE_METHOD, (size,))
    capacity = len(items).to_bytes(4, "big")
    return JavaObject(type_, {"size": len(items)}, {type_.name: [capacity, *items]})


def list_items(value: Any, depth: int = 0) -> list[Any] | None:
    """Return the elements of a Java list of any common class; None if the value is not such a list."""
    if not isinstance(value, JavaObject):
        return None
    if value.type.name == "java.util.ArrayList" or _is_list_of(value):
        return [item for item in value.written.get(value.type.name, []) if not isinstance(item, bytes)]
    if value.type.name == "java.util.Arrays$ArrayList":
        items = value.values.get("a")
        return list(items) if isinstance(items, list) else None
    if depth == MAX_DEPTH:  # a list that contains itself
        return None
    return list_items(value.values.get("list", value.values.get("c")), depth + 1)


def _is_list_of(value: JavaObject) -> bool:
    """Return whether the value is a ``List.of(...)``; a ``Set.of(...)`` or ``Map.of(...)`` has another tag."""
    return value.type.name == "java.util.CollSer" and value.values.get("tag") == 1
