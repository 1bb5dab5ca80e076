"""Options of the form ``NAME=VALUE``."""

from collections.abc import Sequence

from statelib.errors import InvalidRequestError


def pairs_of(option: str, texts: Sequence[str] | None, *, may_be_empty: bool = False) -> dict[str, str]:
    """Return the values of a repeatable option by their names. ``may_be_empty``: a value may have no characters.

    Raises InvalidRequestError (``bad-mapping``), also for a name that is given twice with two values."""
    pairs: dict[str, str] = {}
    for text in texts or ():
        name, separator, rest = text.partition("=")
        if not name or not separator or not (rest or may_be_empty):
            raise InvalidRequestError(f"{option} {text!r}: expected NAME=...", kind="bad-mapping")
        if pairs.setdefault(name, rest) != rest:
            # The values are not shown, because those of a database may be secret.
            twice = f"{option} {name}=... is given twice with two values: expected each name once"
            raise InvalidRequestError(twice, kind="bad-mapping")
    return pairs
