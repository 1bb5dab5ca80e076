"""Options of the form ``NAME=VALUE``."""

from collections.abc import Sequence

from statelib.errors import InvalidRequestError


def pairs_of(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """Return the values of a repeatable option by their names. Raises InvalidRequestError (``bad-mapping``)."""
    pairs = {}
    for text in texts or ():
        name, _, rest = text.partition("=")
        if not name or not rest:
            raise InvalidRequestError(f"{option} {text!r}: expected NAME=...", kind="bad-mapping")
        pairs[name] = rest
    return pairs
