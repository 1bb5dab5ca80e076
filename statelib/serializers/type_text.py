"""The text of a type, as ``str(type)`` writes it, parsed back into the type.

Pipeline files declare types as text, and they are loaded wherever Airflow parses DAGs. So this module imports no Arrow,
and the text is the one aspect of a type that does not lie in the file of the type.
"""

import re

from statelib.model.sql import LogicalType, parameters_problem
from statelib.model.types import (
    JAVA_SCALARS,
    SCALARS,
    STRING_VALUE,
    WINDOWS,
    ArrayOf,
    Decimal,
    Either,
    Enumeration,
    Like,
    ListOf,
    MapOf,
    Nullable,
    ObjectArray,
    OneOf,
    Opaque,
    Option,
    Pojo,
    Row,
    Scalar,
    SetOf,
    Sql,
    StateType,
    Ttl,
    Tuple,
)
from statelib.serializers.aspects.type_parser import ParseType, TypeParser
from statelib.serializers.sql.text import parse_fields, parse_logical

_PADDING = re.compile(r"[0-9]{1,6}")
_TAG = re.compile(r"[0-9]{1,2}")
_DIGITS = re.compile(r"\(\s*([0-9]{1,4})\s*(?:,\s*([0-9]{1,4})\s*)?\)\s*")


def parse_type(text: str) -> StateType:
    """Return the type that ``text`` describes: ``parse_type(str(t)) == t``. Blanks do not matter. Names of fields hold
    none of ``: < > ,``.

    Raise InvalidRequestError (``bad-type-text``) naming the text and the place at which it goes wrong."""
    parser = TypeParser(text, WORDS)
    parsed = parser.type()
    if parser.at != len(text):
        raise parser.error("the end")
    return parsed


def _decimal(parser: TypeParser) -> Decimal:
    """Parse ``(precision, scale)`` or ``(precision)``, whose scale is 0."""
    match = _DIGITS.match(parser.text, parser.at)
    if match is None:
        raise parser.error("a precision and a scale, as in decimal(18, 2)")
    precision, scale = int(match[1]), int(match[2] or 0)
    if parameters_problem("DECIMAL", (precision, scale)):
        raise parser.error("a precision of 1 to 38 digits and a scale of at most as many")
    parser.at = match.end()
    return Decimal(precision, scale)


def _array(parser: TypeParser) -> ArrayOf:
    (element,) = parser.parts("array", 1)
    if not isinstance(element, Scalar):
        raise parser.error("a scalar in array<...>")
    return ArrayOf(element)


def _object_array(parser: TypeParser) -> ObjectArray:
    """Parse ``<class of the elements; type>``."""
    parsed = ObjectArray(parser.open_class(), parser.type())
    parser.close()
    return parsed


def _nullable(parser: TypeParser) -> Nullable:
    """Parse ``<type>`` or ``<type; padding>``."""
    parser.expect("<")
    element, padding = parser.type(), 0
    if parser.skip(";"):
        start, text = parser.at, parser.name()
        if not _PADDING.fullmatch(text):
            raise parser.fail(start, "the size of a padding")
        padding = int(text)
    parser.close()
    return Nullable(element, padding)


def _enumeration(parser: TypeParser) -> Enumeration:
    """Parse ``<class; constant, ...>``."""
    parsed = Enumeration(parser.open_class(), tuple(parser.names()))
    parser.close()
    return parsed


def _pojo(parser: TypeParser) -> Pojo:
    """Parse ``<class; fields>`` and subclasses: ``; +`` before a registered one, ``; -`` before one that was seen."""
    java_class = parser.open_class()
    parser.blanks()
    fields = [] if parser.next_is(";", ">") else parser.fields()
    subclasses: dict[str, list[Pojo]] = {"+": [], "-": []}
    while parser.skip(";"):
        parser.blanks()
        sign = next((sign for sign in subclasses if parser.skip(sign)), None)
        if sign is None:
            raise parser.error("+ or - and a subclass")
        subclass = parser.type()
        if not isinstance(subclass, Pojo):
            raise parser.error("a pojo as a subclass")
        subclasses[sign].append(subclass)
    parser.close()
    return Pojo(java_class, tuple(fields), tuple(subclasses["+"]), tuple(subclasses["-"]))


def _opaque(parser: TypeParser) -> Opaque:
    """Parse ``<serializer>`` or ``<serializer; class of the value>``."""
    parser.expect("<")
    serializer = parser.name()
    parsed = Opaque(serializer, parser.name() if parser.skip(";") else "")
    parser.close()
    return parsed


def _like(parser: TypeParser) -> Like:
    """Parse ``<serializer; form>``."""
    serializer = parser.open_class()
    parsed = Like(parser.type(), serializer)
    parser.close()
    return parsed


def _one_of(parser: TypeParser) -> OneOf:
    """Parse ``<tag: type, ...>``."""
    start, cases = parser.at, parser.named_parts()
    if not all(_TAG.fullmatch(case.name) for case in cases):
        raise parser.fail(start, "a byte in front of each type")
    return OneOf(tuple((int(case.name), case.type) for case in cases))


def _sql_row(parser: TypeParser) -> Sql:
    """Parse ``<name: TYPE, ...>``, the fields of a row."""
    fields, parser.at = parse_fields(parser.text, parser.at, parser.fail, named=True)
    parser.blanks()
    return Sql(LogicalType("ROW", parts=fields))


def _sql(parser: TypeParser) -> Sql:
    """Parse ``<TYPE>``."""
    parser.expect("<")
    type_, parser.at = parse_logical(parser.text, parser.at, parser.fail)
    parser.close()
    return Sql(type_)


WORDS: dict[str, Scalar | ParseType] = {
    **SCALARS,
    **JAVA_SCALARS,
    **WINDOWS,
    STRING_VALUE.name: STRING_VALUE,
    "decimal": _decimal,
    "array": _array,
    "list": lambda parser: ListOf(*parser.parts("list", 1)),
    "set": lambda parser: SetOf(*parser.parts("set", 1)),
    "map": lambda parser: MapOf(*parser.parts("map", 2)),
    "tuple": lambda parser: Tuple(tuple(parser.parts("tuple"))),
    "row": lambda parser: Row(tuple(parser.named_parts())),
    "objects": _object_array,
    "nullable": _nullable,
    "either": lambda parser: Either(*parser.parts("either", 2)),
    "option": lambda parser: Option(*parser.parts("option", 1)),
    "ttl": lambda parser: Ttl(*parser.parts("ttl", 1)),
    "enum": _enumeration,
    "pojo": _pojo,
    "opaque": _opaque,
    "like": _like,
    "oneof": _one_of,
    "rowdata": _sql_row,
    "sql": _sql,
}
"""Per first word of a type the scalar that it names, or the function that parses the rest."""
