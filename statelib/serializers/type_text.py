"""The text of a type, as ``str(type)`` writes it, parsed back into the type."""

from collections.abc import Mapping
from functools import cache

from statelib.model.types import SCALARS, Scalar, StateType
from statelib.serializers.aspects.type_parser import ParseType, TypeParser


@cache
def words() -> Mapping[str, Scalar | ParseType]:
    """Return the first words of all types, each with its scalar or the function that parses the rest."""
    from statelib.serializers.registry import TYPES  # here, because it loads Arrow, which no scalar needs

    return {word: entry for support in TYPES for word, entry in support.words.items()}


def parse_type(text: str) -> StateType:
    """Return the type that ``text`` describes: ``parse_type(str(t)) == t``. Blanks do not matter. Names of fields hold
    none of ``: < > ,``.

    Raise InvalidRequestError (``bad-type-text``) naming the text and the place at which it goes wrong."""
    if text in SCALARS:
        return SCALARS[text]
    parser = TypeParser(text, words())
    parsed = parser.type()
    if parser.at != len(text):
        raise parser.error("the end")
    return parsed
