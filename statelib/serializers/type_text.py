"""The text of a type, as ``str(type)`` writes it, parsed back into the type."""

from statelib.model.types import Scalar, StateType
from statelib.serializers.aspects.type_parser import ParseType, TypeParser
from statelib.serializers.registry import TYPES

WORDS: dict[str, Scalar | ParseType] = {word: entry for support in TYPES for word, entry in support.words.items()}
"""The first words of all types."""


def parse_type(text: str) -> StateType:
    """Return the type that ``text`` describes: ``parse_type(str(t)) == t``. Blanks do not matter. Names of fields hold
    none of ``: < > ,``.

    Raise InvalidRequestError (``bad-type-text``) naming the text and the place at which it goes wrong."""
    parser = TypeParser(text, WORDS)
    parsed = parser.type()
    if parser.at != len(text):
        raise parser.error("the end")
    return parsed
